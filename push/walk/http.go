package walk

import (
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"navarch.io/navarch/push/xds"
)

// httpFilters is the prefix of the names of Envoy's own HTTP filters.
const httpFilters = "envoy.filters.http."

// http applies an HTTP connection manager to the request. As in Envoy, the route is selected before the filters run.
// The route's action is applied after the filters.
func (w *walker) http(m *hcmv3.HttpConnectionManager) {
	if w.SpeaksTLS() && !w.ended {
		w.step("closes the connection: the client speaks TLS, and the filter chain expects HTTP")
		return
	}
	var filters []string
	for _, f := range m.GetHttpFilters() {
		if !f.GetDisabled() {
			filters = append(filters, strings.TrimPrefix(f.GetName(), httpFilters))
		}
	}
	w.step("filters %s", strings.Join(filters, " "))
	if !w.receive(m) {
		return
	}
	rc := m.GetRouteConfig()
	if name := m.GetRds().GetRouteConfigName(); name != "" {
		if rc = w.Route(name); rc == nil {
			w.step("waits for route configuration %s", name)
			w.doubt(Possible, "route configuration %s may arrive", name)
			w.result.Outcome = Waiting
			return
		}
	}
	on := w.selectRoute(rc)
	for _, f := range m.GetHttpFilters() {
		if on.skips(f) {
			continue
		}
		if w.httpFilter(f, rc, &on) {
			return
		}
	}
	w.routed(rc, on, filters)
}

// receive sets the properties of a request that the connection manager itself decides. They are the scheme, the path
// and the client's address. If the manager refuses or redirects the path, receive answers the request and returns
// false.
func (w *walker) receive(m *hcmv3.HttpConnectionManager) bool {
	if w.Headers = maps.Clone(w.Headers); w.Headers == nil {
		w.Headers = map[string]string{}
	}
	scheme := "http"
	if w.ended {
		scheme = "https"
	}
	edge := m.GetUseRemoteAddress().GetValue()
	if stated := w.Headers["x-forwarded-proto"]; stated != "" && (!edge || m.GetXffNumTrustedHops() > 0) {
		scheme = stated
	}
	w.Headers[":scheme"], w.Headers["x-forwarded-proto"] = scheme, scheme
	w.trusted = forwardedFor(w.Headers["x-forwarded-for"], edge, int(m.GetXffNumTrustedHops()))
	path, ok := normalised(w.Headers[":path"], m)
	redirected := ok && redirects(w.Headers[":path"], m)
	switch {
	case !ok, redirected && IsGRPC(w.Headers): // clients of gRPC follow no redirects
		w.step("400: path %s", w.Headers[":path"])
		w.answer(400)
		return false
	case redirected:
		w.step("307: path %s", path)
		w.answer(307)
		return false
	}
	w.Headers[":path"] = path
	return true
}

// forwardedFor returns the client's address in X-Forwarded-For that trusted proxies have added. It returns "" if the
// client's address is that of the connection.
func forwardedFor(header string, edge bool, hops int) string {
	all := strings.Split(header, ",")
	if edge {
		hops--
	}
	if at := len(all) - 1 - hops; header != "" && hops >= 0 && at >= 0 {
		return strings.TrimSpace(all[at])
	}
	return ""
}

// httpFilter applies an HTTP filter, and reports whether the filter answers the request. A filter may change the
// selected route.
func (w *walker) httpFilter(f *hcmv3.HttpFilter, rc *routev3.RouteConfiguration, on *selected) bool {
	config, name := f.GetTypedConfig(), strings.TrimPrefix(f.GetName(), httpFilters)
	tokens, extern := &jwtv3.JwtAuthentication{}, &extauthzv3.ExtAuthz{}
	switch {
	case config.MessageIs(tokens) && config.UnmarshalTo(tokens) == nil:
		if status := w.authenticate(tokens); status > 0 {
			w.answer(status)
			return true
		}
		if w.reroute {
			*on = w.selectRoute(rc)
		}
	case config.MessageIs(extern) && config.UnmarshalTo(extern) == nil:
		if enabled := extern.GetFilterEnabledMetadata(); enabled == nil || w.metadataMatches(enabled) {
			cluster := extern.GetGrpcService().GetEnvoyGrpc().GetClusterName()
			if http := extern.GetHttpService(); http != nil {
				cluster = http.GetServerUri().GetCluster()
			}
			w.step("possible: the authorization service %s decides", cluster)
			w.doubt(Possible, "the authorization service %s decides", cluster)
		}
	case w.isUnknown(f.GetName()) || f.GetConfigDiscovery() != nil:
		w.step("possible: filter %s answers or changes the request", name)
		w.doubt(Possible, "filter %s may answer or change the request", name)
	case w.denied(config):
		w.answer(403)
		return true
	}
	return false
}

// unknown lists words in names of filters. A walk cannot know the decisions of filters with such a name.
var unknown = []string{"ratelimit", "rate_limit", "lua", "wasm", "ext_proc", "ext_authz", "golang", "oauth2", "basic_auth", "csrf"}

// isUnknown reports whether a walk cannot know the decisions of a filter.
func (w *walker) isUnknown(name string) bool {
	return slices.ContainsFunc(unknown, func(part string) bool { return strings.Contains(name, part) })
}

// routed applies the selected route, after all filters.
func (w *walker) routed(rc *routev3.RouteConfiguration, on selected, filters []string) {
	switch {
	case on.host == nil:
		w.decide(xds.Route, rc.GetName(), "404: no virtual host in %s", rc.GetName())
		w.answer(404)
	case on.secure:
		w.decide(xds.Route, rc.GetName(), "301: virtual host %s requires TLS", on.host.GetName())
		w.answer(301)
	case on.route == nil:
		w.decide(xds.Route, rc.GetName(), "404: no route in virtual host %s", on.host.GetName())
		w.addPassedOver(on)
		w.answer(404)
	default:
		w.decide(xds.Route, rc.GetName(), "route %s virtual host %s route %s", rc.GetName(), on.host.GetName(), or(on.route.GetName()))
		w.addPassedOver(on)
		w.act(on.host, on.route, filters)
	}
}
