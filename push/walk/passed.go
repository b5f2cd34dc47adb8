package walk

import (
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// MaxPassed is the maximum number of entries in Step.Passed.
const MaxPassed = 20

// Passed is a route that does not match a request.
type Passed struct {
	Route string // name; may be empty
	Index int    // among the routes of the virtual host
	// Why names the first part of the match that the request does not have. It is one line, but may contain unprintable
	// characters of the configuration or the request.
	Why string
}

// String returns the route's name, or its place in the virtual host, and the reason.
func (p Passed) String() string {
	name := p.Route
	if name == "" {
		name = fmt.Sprint("#", p.Index+1)
	}
	return "not route " + name + ": " + p.Why
}

// addPassedOver adds the routes that were passed over to the last step.
func (w *walker) addPassedOver(on selected) {
	last := &w.result.Steps[len(w.result.Steps)-1]
	last.Passed, last.MorePassed = on.passed, on.more
}

// mismatch returns the first reason why a match does not accept the request. It must be called only for such a match.
// It examines the parts of the match in the order of walker.matches and walker.acceptsRest.
func (w *walker) mismatch(m *routev3.RouteMatch) string {
	path, query, _ := strings.Cut(w.Headers[":path"], "?")
	for _, d := range m.GetDynamicMetadata() {
		if !w.metadataMatches(d) {
			return "the claims of the token, or other metadata of the request, differ"
		}
	}
	if !w.pathMatches(m, path) {
		return w.pathMismatch(m, path)
	}
	for _, h := range m.GetHeaders() {
		if !w.headersMatch([]*routev3.HeaderMatcher{h}) {
			return w.headerMismatch(h)
		}
	}
	params := parameters(query)
	for _, q := range m.GetQueryParameters() {
		if !queryMatches([]*routev3.QueryParameterMatcher{q}, params) {
			value, there := params[q.GetName()]
			return found("query parameter "+q.GetName(), value, there) + wanted(q.GetStringMatch(), false)
		}
	}
	if m.GetGrpc() != nil && !IsGRPC(w.Headers) {
		return "the request is not gRPC"
	}
	return "its share of the requests is 0"
}

// pathMismatch returns the reason why a path does not match.
func (w *walker) pathMismatch(m *routev3.RouteMatch, path string) string {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return fmt.Sprintf("path %s, want prefix %s", path, p.Prefix)
	case *routev3.RouteMatch_Path:
		return fmt.Sprintf("path %s, want %s", path, p.Path)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return fmt.Sprintf("path %s, want %s or a path below it", path, p.PathSeparatedPrefix)
	case *routev3.RouteMatch_SafeRegex:
		return fmt.Sprintf("path %s, want regular expression %s", path, p.SafeRegex.GetRegex())
	case *routev3.RouteMatch_PathMatchPolicy:
		return fmt.Sprintf("path %s does not match the template", path)
	case *routev3.RouteMatch_ConnectMatcher_:
		return fmt.Sprintf("method %s, want CONNECT", w.Headers[":method"])
	}
	return "its match of paths is of an unknown kind"
}

// headerMismatch returns the reason why the headers do not satisfy a matcher.
func (w *walker) headerMismatch(h *routev3.HeaderMatcher) string {
	value, there := w.Headers[strings.ToLower(h.GetName())]
	is := found("header "+h.GetName(), value, there)
	switch p := h.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_StringMatch:
		return is + wanted(p.StringMatch, h.GetInvertMatch())
	case nil, *routev3.HeaderMatcher_PresentMatch:
		return is
	}
	return is + ", want a match of an unknown kind"
}

// found returns a text that states the value of a part of the request.
func found(part, value string, there bool) string {
	if !there {
		return part + " is absent"
	}
	return part + " is " + value
}

// wanted returns a text that states a matcher, or an empty text without one.
func wanted(m *matcherv3.StringMatcher, inverted bool) string {
	text := ""
	switch p := m.GetMatchPattern().(type) {
	case nil:
		return ""
	case *matcherv3.StringMatcher_Exact:
		text = p.Exact
	case *matcherv3.StringMatcher_Prefix:
		text = "prefix " + p.Prefix
	case *matcherv3.StringMatcher_Suffix:
		text = "suffix " + p.Suffix
	case *matcherv3.StringMatcher_Contains:
		text = "a value with " + p.Contains
	case *matcherv3.StringMatcher_SafeRegex:
		text = "regular expression " + p.SafeRegex.GetRegex()
	default:
		text = "a match of an unknown kind"
	}
	if inverted {
		return ", want any value but " + text
	}
	return ", want " + text
}
