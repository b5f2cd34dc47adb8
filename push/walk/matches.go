package walk

import routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// Matches reports whether a route's match holds for a request with these headers. They have lower-case names, and the
// pseudo headers of Request.Headers.
func Matches(m *routev3.RouteMatch, headers map[string]string) bool {
	return (&walker{Request: Request{Headers: headers}}).matches(m)
}
