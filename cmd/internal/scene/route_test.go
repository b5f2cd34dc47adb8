package scene

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// http is what an HTTP connection manager does with the request.
func (r *request) http(m *hcmv3.HttpConnectionManager) {
	var filters []string
	for _, f := range m.GetHttpFilters() {
		filters = append(filters, strings.TrimPrefix(f.GetName(), "envoy.filters.http."))
	}
	r.say("filters %s", strings.Join(filters, " "))
	for _, f := range m.GetHttpFilters() {
		if r.denied(f.GetTypedConfig()) {
			return
		}
	}
	rc := m.GetRouteConfig()
	if name := m.GetRds().GetRouteConfigName(); name != "" {
		if rc = holds[*routev3.RouteConfiguration](r.proxy, xds.Route)[name]; rc == nil {
			r.say("waits for route configuration %s", name)
			return
		}
	}
	vh := r.virtualHost(rc)
	if vh == nil {
		r.say("404: no virtual host in %s", rc.GetName())
		return
	}
	for _, route := range vh.GetRoutes() {
		if r.matches(route.GetMatch()) {
			r.say("route %s virtual host %s route %s", rc.GetName(), vh.GetName(), cmpOr(route.GetName()))
			r.act(vh, route, filters)
			return
		}
	}
	r.say("404: no route in virtual host %s", vh.GetName())
}

func cmpOr(name string) string {
	if name == "" {
		return "-"
	}
	return name
}

var withPort = regexp.MustCompile(`:[0-9]+$`)

// virtualHost picks by the domains: exact, the longest *.suffix, the longest prefix.*, then *.
func (r *request) virtualHost(rc *routev3.RouteConfiguration) *routev3.VirtualHost {
	host := strings.ToLower(r.headers[":authority"])
	if rc.GetIgnorePortInHostMatching() {
		host = withPort.ReplaceAllString(host, "")
	}
	var best *routev3.VirtualHost
	most := -1
	for _, vh := range rc.GetVirtualHosts() {
		for _, d := range vh.GetDomains() {
			score := -1
			switch d = strings.ToLower(d); {
			case d == "*":
				score = 0
			case d == host:
				score = 1 << 30
			case strings.HasPrefix(d, "*") && strings.HasSuffix(host, d[1:]) && len(host) >= len(d):
				score = 1<<20 + len(d)
			case strings.HasSuffix(d, "*") && strings.HasPrefix(host, d[:len(d)-1]) && len(host) >= len(d):
				score = len(d)
			}
			if score > most {
				best, most = vh, score
			}
		}
	}
	return best
}

func (r *request) matches(m *routev3.RouteMatch) bool {
	path, query, _ := strings.Cut(r.headers[":path"], "?")
	fold := func(s string) string { return s }
	if m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue() {
		fold = strings.ToLower
	}
	hit := false
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		hit = strings.HasPrefix(fold(path), fold(p.Prefix))
	case *routev3.RouteMatch_Path:
		hit = fold(path) == fold(p.Path)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		hit = fold(path) == fold(p.PathSeparatedPrefix) || strings.HasPrefix(fold(path), fold(p.PathSeparatedPrefix)+"/")
	case *routev3.RouteMatch_SafeRegex:
		hit = fullMatch(p.SafeRegex.GetRegex(), path)
	}
	params, err := url.ParseQuery(query)
	claimed := slices.ContainsFunc(m.GetDynamicMetadata(), func(d *matcherv3.MetadataMatcher) bool { return !d.GetInvert() }) // no filter has found any
	return hit && err == nil && !claimed && r.headersMatch(m) && queryMatches(m, params)
}

func (r *request) headersMatch(m *routev3.RouteMatch) bool {
	for _, h := range m.GetHeaders() {
		value, there := r.headers[strings.ToLower(h.GetName())]
		if !there && h.GetTreatMissingHeaderAsEmpty() {
			there = true
		}
		if !there && h.GetInvertMatch() && !h.GetPresentMatch() {
			return false // a missing header matches neither way, unless presence is asked
		}
		if (there && (h.GetPresentMatch() || stringMatches(h.GetStringMatch(), value))) == h.GetInvertMatch() {
			return false
		}
	}
	return true
}

func queryMatches(m *routev3.RouteMatch, params url.Values) bool {
	for _, q := range m.GetQueryParameters() {
		if !params.Has(q.GetName()) || !q.GetPresentMatch() && !stringMatches(q.GetStringMatch(), params.Get(q.GetName())) {
			return false
		}
	}
	return true
}

func stringMatches(m *matcherv3.StringMatcher, value string) bool {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return fold(value) == fold(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(fold(value), fold(p.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(fold(value), fold(p.Suffix))
	case *matcherv3.StringMatcher_SafeRegex:
		return fullMatch(p.SafeRegex.GetRegex(), value)
	}
	return false
}

func fullMatch(pattern, value string) bool {
	return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(value)
}

// act is what the matched route does.
func (r *request) act(vh *routev3.VirtualHost, route *routev3.Route, filters []string) {
	r.edits("", "request", route.GetRequestHeadersToAdd(), route.GetRequestHeadersToRemove())
	r.edits("", "response", route.GetResponseHeadersToAdd(), route.GetResponseHeadersToRemove())
	if slices.Contains(filters, "fault") {
		r.fault(route)
	}
	if d := route.GetDirectResponse(); d != nil {
		r.say("answers %d %q", d.GetStatus(), d.GetBody().GetInlineString())
		return
	}
	if d := route.GetRedirect(); d != nil {
		r.say("redirects %s", line(d))
		return
	}
	action := route.GetRoute()
	if action.GetCluster() != "" {
		r.reach("to", action.GetCluster())
	}
	for _, w := range action.GetWeightedClusters().GetClusters() {
		r.reach(fmt.Sprint(w.GetWeight().GetValue()), w.GetName())
		r.edits("  ", "request", w.GetRequestHeadersToAdd(), w.GetRequestHeadersToRemove())
		r.edits("  ", "response", w.GetResponseHeadersToAdd(), w.GetResponseHeadersToRemove())
	}
	for _, m := range action.GetRequestMirrorPolicies() {
		r.reach("mirrors "+line(m.GetRuntimeFraction().GetDefaultValue()), m.GetCluster())
	}
	switch {
	case action.GetTimeout() == nil:
		r.say("timeout 15s") // Envoy's default
	case action.GetTimeout().AsDuration() > 0:
		r.say("timeout %v", action.GetTimeout().AsDuration())
	}
	retries := action.GetRetryPolicy()
	if retries == nil {
		retries = vh.GetRetryPolicy()
	}
	if retries != nil {
		r.say("retries %d on %s%s", retries.GetNumRetries().GetValue(), retries.GetRetryOn(), perTry(retries))
	}
	if p := action.GetPrefixRewrite(); p != "" {
		r.say("rewrites prefix to %s", p)
	}
	if p := action.GetRegexRewrite(); p != nil {
		r.say("rewrites %s", line(p))
	}
	if h := action.GetHostRewriteLiteral(); h != "" {
		r.say("rewrites host to %s", h)
	}
	for _, h := range action.GetHashPolicy() {
		r.say("hashes %s", line(h))
	}
}

func perTry(p *routev3.RetryPolicy) string {
	if t := p.GetPerTryTimeout(); t != nil {
		return fmt.Sprintf(", %v each", t.AsDuration())
	}
	return ""
}

// line is a message on one line, the same each time.
func line(m proto.Message) string {
	return strings.ReplaceAll(strings.ReplaceAll(protojson.MarshalOptions{UseProtoNames: true}.Format(m), ", ", ","), ": ", ":")
}

func (r *request) edits(indent, what string, add []*corev3.HeaderValueOption, remove []string) {
	for _, h := range add {
		verb := "adds to"
		if h.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			verb = "sets in"
		}
		r.say("%s%s %s: %s=%s", indent, verb, what, h.GetHeader().GetKey(), h.GetHeader().GetValue())
	}
	for _, name := range remove {
		r.say("%sremoves from %s: %s", indent, what, name)
	}
}

func (r *request) fault(route *routev3.Route) {
	any := route.GetTypedPerFilterConfig()["envoy.filters.http.fault"]
	f := &faultv3.HTTPFault{}
	if any == nil || any.UnmarshalTo(f) != nil {
		return
	}
	if d := f.GetDelay(); d != nil {
		r.say("delays %v of %s", d.GetFixedDelay().AsDuration(), line(d.GetPercentage()))
	}
	if a := f.GetAbort(); a != nil {
		status := strconv.FormatUint(uint64(a.GetHttpStatus()), 10)
		if grpc, is := a.GetErrorType().(*faultv3.FaultAbort_GrpcStatus); is {
			status = "gRPC's " + codes.Code(grpc.GrpcStatus).String()
		}
		r.say("aborts with %s of %s", status, line(a.GetPercentage()))
	}
}

// reach says what is behind a cluster.
func (r *request) reach(how, name string) {
	c := holds[*clusterv3.Cluster](r.proxy, xds.Cluster)[name]
	if c == nil {
		r.say("%s %s: 503, there is no such cluster", how, name)
		return
	}
	if c.GetClusterType().GetName() == "envoy.clusters.dynamic_forward_proxy" {
		r.say("%s %s: where %s resolves to", how, name, r.headers[":authority"])
		return
	}
	cla := c.GetLoadAssignment()
	switch c.GetType() {
	case clusterv3.Cluster_ORIGINAL_DST:
		r.say("%s %s: where it was sent, %s:%d", how, name, r.ip, r.port)
		return
	case clusterv3.Cluster_EDS:
		cla = holds[*endpointv3.ClusterLoadAssignment](r.proxy, xds.Endpoint)[name]
	}
	var hosts []string
	for _, l := range cla.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if e.GetHealthStatus() == corev3.HealthStatus_UNHEALTHY { // counted, and sent nothing
				continue
			}
			a := e.GetEndpoint().GetAddress()
			if p := a.GetPipe(); p != nil {
				hosts = append(hosts, p.GetPath())
				continue
			}
			hosts = append(hosts, fmt.Sprintf("%s:%d", a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue()))
		}
	}
	slices.Sort(hosts)
	if len(hosts) == 0 {
		hosts = []string{"503, no endpoints"}
	}
	r.say("%s %s: %s", how, name, strings.Join(hosts, " "))
}
