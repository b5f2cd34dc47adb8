package walk

import routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// Matches reports whether a route's match accepts a request with these headers. Names of headers are in lower case. The
// headers include the pseudo headers :method, :authority, :scheme and :path. The map stays unchanged. The request has
// no dynamic metadata. Conditions on gRPC, TLS, cookies, filter state and runtime fractions are ignored. The result is
// false for a nil match.
func Matches(m *routev3.RouteMatch, headers map[string]string) bool {
	return (&walker{Request: Request{Headers: headers}}).matches(m)
}
