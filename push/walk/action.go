package walk

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// act applies the matched route. The parameter filters contains the names of the connection manager's filters.
func (w *walker) act(vh *routev3.VirtualHost, route *routev3.Route, filters []string) {
	w.edits("", "request", route.GetRequestHeadersToAdd(), route.GetRequestHeadersToRemove())
	w.change(route.GetRequestHeadersToAdd(), route.GetRequestHeadersToRemove())
	w.edits("", "response", route.GetResponseHeadersToAdd(), route.GetResponseHeadersToRemove())
	if slices.Contains(filters, "fault") && w.fault(route) {
		return
	}
	if slices.Contains(filters, "cors") && w.preflight(vh, route) {
		w.step("answers a preflight request")
		w.answer(200)
		w.result.GRPC = nil // the CORS filter sends no gRPC status
		return
	}
	if d := route.GetDirectResponse(); d != nil {
		w.step("answers %d %q", d.GetStatus(), d.GetBody().GetInlineString())
		w.answer(int(d.GetStatus()))
		return
	}
	if d := route.GetRedirect(); d != nil {
		w.step("redirects %s", line(d))
		w.answer(redirectStatus[d.GetResponseCode()])
		return
	}
	w.forward(route.GetRoute())
	w.policies(vh, route.GetRoute())
	w.rewrite(route)
	w.result.Sent = w.Headers
}

// redirectStatus maps the codes of redirects to HTTP statuses.
var redirectStatus = map[routev3.RedirectAction_RedirectResponseCode]int{
	routev3.RedirectAction_MOVED_PERMANENTLY: 301, routev3.RedirectAction_FOUND: 302, routev3.RedirectAction_SEE_OTHER: 303,
	routev3.RedirectAction_TEMPORARY_REDIRECT: 307, routev3.RedirectAction_PERMANENT_REDIRECT: 308,
}

// forward adds the clusters of a route to Result.To, and the clusters of its mirrors to Result.Mirrors. For a weighted
// cluster with weight 0, and for a mirror of 0 %, it only adds a step.
func (w *walker) forward(action *routev3.RouteAction) {
	w.result.Outcome = Forwarded
	if action.GetCluster() != "" {
		w.result.To = append(w.result.To, w.reach("to", action.GetCluster(), 0))
	}
	for _, c := range action.GetWeightedClusters().GetClusters() {
		weight := c.GetWeight().GetValue()
		if to := w.reach(fmt.Sprint(weight), c.GetName(), weight); weight > 0 {
			w.result.To = append(w.result.To, to)
		}
		w.edits("  ", "request", c.GetRequestHeadersToAdd(), c.GetRequestHeadersToRemove())
		w.edits("  ", "response", c.GetResponseHeadersToAdd(), c.GetResponseHeadersToRemove())
	}
	for _, m := range action.GetRequestMirrorPolicies() {
		to := w.reach("mirrors "+line(m.GetRuntimeFraction().GetDefaultValue()), m.GetCluster(), 0)
		if m.GetRuntimeFraction() == nil || m.GetRuntimeFraction().GetDefaultValue().GetNumerator() > 0 {
			w.result.Mirrors = append(w.result.Mirrors, to)
		}
	}
	w.arrives()
}

// arrives sets Result.Admission to the present confidence. Afterwards it adds doubts about the destinations. One doubt
// is the choice among several clusters. The other is the state of the endpoints, which only Envoy knows.
func (w *walker) arrives() {
	w.result.Admission = w.result.Confidence
	if len(w.result.To) > 1 {
		w.doubt(Likely, "the weights choose the cluster")
	}
	w.doubtEndpoints()
}

// policies adds steps about the time limit, retries, rewrites and hash policies of a forwarded request.
func (w *walker) policies(vh *routev3.VirtualHost, action *routev3.RouteAction) {
	switch {
	case action.GetTimeout() == nil:
		w.step("timeout 15s") // Envoy's default
	case action.GetTimeout().AsDuration() > 0:
		w.step("timeout %v", action.GetTimeout().AsDuration())
	}
	retries := action.GetRetryPolicy()
	if retries == nil {
		retries = vh.GetRetryPolicy()
	}
	if retries != nil {
		w.step("retries %d on %s%s", retries.GetNumRetries().GetValue(), retries.GetRetryOn(), perTry(retries))
	}
	if p := action.GetPrefixRewrite(); p != "" {
		w.step("rewrites prefix to %s", p)
	}
	if p := action.GetRegexRewrite(); p != nil {
		w.step("rewrites %s", line(p))
	}
	if h := action.GetHostRewriteLiteral(); h != "" {
		w.step("rewrites host to %s", h)
	}
	for _, h := range action.GetHashPolicy() {
		w.step("hashes %s", line(h))
	}
}

// perTry returns a text about the time limit of each try. The text is empty without a limit.
func perTry(p *routev3.RetryPolicy) string {
	if t := p.GetPerTryTimeout(); t != nil {
		return fmt.Sprintf(", %v each", t.AsDuration())
	}
	return ""
}

// line returns a message as JSON on one line. Equal messages have equal texts.
func line(m proto.Message) string {
	return strings.ReplaceAll(strings.ReplaceAll(protojson.MarshalOptions{UseProtoNames: true}.Format(m), ", ", ","), ": ", ":")
}

// edits adds a step for each header that a route or cluster adds, sets or removes.
func (w *walker) edits(indent, what string, add []*corev3.HeaderValueOption, remove []string) {
	for _, h := range add {
		verb := "adds to"
		if h.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			verb = "sets in"
		}
		w.step("%s%s %s: %s=%s", indent, verb, what, h.GetHeader().GetKey(), h.GetHeader().GetValue())
	}
	for _, name := range remove {
		w.step("%sremoves from %s: %s", indent, what, name)
	}
}

// reach returns the destination for a cluster, and adds a step about the cluster. The text of the step begins with the
// parameter how.
func (w *walker) reach(how, name string, weight uint32) Destination {
	to := Destination{Cluster: name, Weight: weight}
	c := w.Cluster(name)
	cla := c.GetLoadAssignment()
	to.grpc = IsGRPC(w.Headers)
	text, failure := "", statusText(503, to.grpc)
	if w.result.TCP {
		failure = "closed"
	}
	switch {
	case c == nil:
		to.Reach, text = Missing, failure+", there is no such cluster"
	case c.GetClusterType().GetName() == "envoy.clusters.dynamic_forward_proxy":
		to.Reach, text = Resolved, "where "+w.Headers[":authority"]+" resolves to"
	case c.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		to.Reach, text = Original, fmt.Sprintf("where it was sent, %s:%d", w.Address, w.Port)
	default:
		if c.GetType() == clusterv3.Cluster_EDS {
			cla = w.Endpoints(name)
		}
		to.Endpoints = endpoints(cla)
		if text = strings.Join(to.Endpoints, " "); len(to.Endpoints) == 0 {
			to.Reach, text = Empty, failure+", no endpoints"
		}
	}
	to.TLS, to.byEndpoint = upstream(c, cla)
	w.decide(xds.Cluster, name, "%s %s: %s", how, name, text)
	w.observe(&to)
	return to
}

// unhealthy lists the health states of endpoints to which Envoy sends no requests.
var unhealthy = []corev3.HealthStatus{corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_TIMEOUT}

// endpoints returns the addresses of the endpoints that may receive requests, sorted.
func endpoints(cla *endpointv3.ClusterLoadAssignment) (hosts []string) {
	for _, l := range cla.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if slices.Contains(unhealthy, e.GetHealthStatus()) {
				continue
			}
			hosts = append(hosts, addressOf(e))
		}
	}
	slices.Sort(hosts)
	return hosts
}

// addressOf returns the address of an endpoint: host:port, or the path of a Unix socket.
func addressOf(e *endpointv3.LbEndpoint) string {
	return HostPort(e.GetEndpoint().GetAddress())
}

// HostPort returns an address in the form of Destination.Endpoints: host:port, or the path of a Unix socket.
func HostPort(a *corev3.Address) string {
	if p := a.GetPipe(); p != nil {
		return p.GetPath()
	}
	return fmt.Sprintf("%s:%d", a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue())
}
