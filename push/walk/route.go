package walk

import (
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// selected contains the virtual host and the route for a request.
type selected struct {
	host   *routev3.VirtualHost // nil: no virtual host has the request's host
	secure bool                 // the virtual host requires TLS, and the request came without TLS
	route  *routev3.Route       // nil: no route of the virtual host matches
	passed []Passed             // at most MaxPassed of the routes that precede route
	more   int                  // number of further routes that precede route
}

// selectRoute selects the virtual host for the request, and the first route of the virtual host that matches.
func (w *walker) selectRoute(rc *routev3.RouteConfiguration) (on selected) {
	if on.host = w.virtualHost(rc); on.host == nil {
		return on
	}
	if on.host.GetRequireTls() == routev3.VirtualHost_ALL && w.Headers["x-forwarded-proto"] != "https" {
		on.secure = true
		return on
	}
	for _, route := range on.host.GetRoutes() {
		if w.matches(route.GetMatch()) && w.acceptsRest(route) {
			on.route = route
			break
		}
		if len(on.passed) == MaxPassed {
			on.more++
			continue
		}
		on.passed = append(on.passed, Passed{Route: route.GetName(), Index: len(on.passed), Why: w.mismatch(route.GetMatch())})
	}
	return on
}

// acceptsRest checks the conditions of a route's match that walker.matches ignores. It reports whether they accept the
// request. Conditions that a walk cannot decide lower the confidence.
func (w *walker) acceptsRest(route *routev3.Route) bool {
	m := route.GetMatch()
	if m.GetGrpc() != nil && !IsGRPC(w.Headers) {
		return false
	}
	if of := m.GetRuntimeFraction(); of != nil {
		share := shareOf(of.GetDefaultValue())
		if share == 0 {
			return false
		}
		if share < 1 {
			w.doubt(Likely, "route %s is selected for a share of the requests", or(route.GetName()))
		}
	}
	if m.GetTlsContext() != nil || len(m.GetCookies())+len(m.GetFilterState()) > 0 {
		w.doubt(Possible, "route %s has a match of an unknown kind, which is taken as a match", or(route.GetName()))
	}
	return true
}

// skips reports whether a filter does not apply to the request. The route, or else the virtual host, may disable a
// filter. They may also enable a filter that is disabled by default.
func (on selected) skips(f *hcmv3.HttpFilter) bool {
	for _, of := range []map[string]*anypb.Any{on.route.GetTypedPerFilterConfig(), on.host.GetTypedPerFilterConfig()} {
		if config, set := of[f.GetName()]; set {
			off := &routev3.FilterConfig{}
			return config.MessageIs(off) && config.UnmarshalTo(off) == nil && off.GetDisabled()
		}
	}
	return f.GetDisabled()
}

var withPort = regexp.MustCompile(`:[0-9]+$`)

// virtualHost selects the virtual host by its domains. The result is nil if no domain matches. The order of precedence
// is: an exact domain, the longest *.suffix, the longest prefix.*, and *.
func (w *walker) virtualHost(rc *routev3.RouteConfiguration) *routev3.VirtualHost {
	host := strings.ToLower(w.Headers[":authority"])
	if rc.GetIgnorePortInHostMatching() {
		host = withPort.ReplaceAllString(host, "")
	}
	var best *routev3.VirtualHost
	most := -1
	for _, vh := range rc.GetVirtualHosts() {
		for _, d := range vh.GetDomains() {
			if score := domainRank(strings.ToLower(d), host); score > most {
				best, most = vh, score
			}
		}
	}
	return best
}

// domainRank returns a number that is higher for a more specific match of a host by a domain, or -1 without a match.
func domainRank(domain, host string) int {
	switch {
	case domain == "*":
		return 0
	case domain == host:
		return 1 << 30
	case strings.HasPrefix(domain, "*") && strings.HasSuffix(host, domain[1:]) && len(host) >= len(domain):
		return 1<<20 + len(domain)
	case strings.HasSuffix(domain, "*") && strings.HasPrefix(host, domain[:len(domain)-1]) && len(host) >= len(domain):
		return len(domain)
	}
	return -1
}

// matches reports whether the conditions of a route's match on path, headers, query and dynamic metadata accept the
// request.
func (w *walker) matches(m *routev3.RouteMatch) bool {
	path, query, _ := strings.Cut(w.Headers[":path"], "?")
	for _, d := range m.GetDynamicMetadata() {
		if !w.metadataMatches(d) {
			return false
		}
	}
	return w.pathMatches(m, path) && w.headersMatch(m.GetHeaders()) && queryMatches(m.GetQueryParameters(), parameters(query))
}

// parameters returns the first value of each parameter of a query. As in Envoy, names and values are not decoded.
func parameters(query string) map[string]string {
	all := map[string]string{}
	for one := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(one, "=")
		if _, known := all[name]; !known && one != "" {
			all[name] = value
		}
	}
	return all
}

// pathMatches reports whether a match accepts a path without its query.
func (w *walker) pathMatches(m *routev3.RouteMatch, path string) bool {
	fold := func(s string) string { return s }
	if m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue() {
		fold = strings.ToLower
	}
	stated := path // regular expressions ignore case_sensitive
	path = fold(path)
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(path, fold(p.Prefix))
	case *routev3.RouteMatch_Path:
		return path == fold(p.Path)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return path == fold(p.PathSeparatedPrefix) || strings.HasPrefix(path, fold(p.PathSeparatedPrefix)+"/")
	case *routev3.RouteMatch_SafeRegex:
		return fullMatch(p.SafeRegex.GetRegex(), stated)
	case *routev3.RouteMatch_PathMatchPolicy:
		return templateMatches(p.PathMatchPolicy.GetTypedConfig(), stated)
	case *routev3.RouteMatch_ConnectMatcher_:
		return w.Headers[":method"] == "CONNECT"
	}
	return false
}

// headersMatch reports whether all matchers accept the headers. A matcher that compares the value fails for a missing
// header, even if the matcher is inverted. A matcher without a kind tests the presence of the header.
func (w *walker) headersMatch(all []*routev3.HeaderMatcher) bool {
	for _, h := range all {
		value, there := w.Headers[strings.ToLower(h.GetName())]
		there = there || h.GetTreatMissingHeaderAsEmpty()
		holds := there
		switch p := h.GetHeaderMatchSpecifier().(type) {
		case nil:
		case *routev3.HeaderMatcher_PresentMatch:
			holds = there == p.PresentMatch
		case *routev3.HeaderMatcher_StringMatch:
			if !there {
				return false
			}
			holds = stringMatches(p.StringMatch, value)
		default:
			if there {
				w.doubt(Possible, "a match of header %s of an unknown kind, %T, is taken as no match", h.GetName(), p)
			}
			return false
		}
		if holds == h.GetInvertMatch() {
			return false
		}
	}
	return true
}

// queryMatches reports whether all matchers accept the query parameters.
func queryMatches(all []*routev3.QueryParameterMatcher, params map[string]string) bool {
	for _, q := range all {
		value, there := params[q.GetName()]
		if !there || !q.GetPresentMatch() && !stringMatches(q.GetStringMatch(), value) {
			return false
		}
	}
	return true
}

// stringMatches reports whether a matcher accepts a value.
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
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(fold(value), fold(p.Contains))
	case *matcherv3.StringMatcher_SafeRegex:
		return fullMatch(p.SafeRegex.GetRegex(), value)
	}
	return false
}

// fullMatch reports whether a regular expression in RE2 syntax matches the whole value. An invalid expression matches
// nothing, because Envoy refuses a resource with such an expression.
func fullMatch(pattern, value string) bool {
	re, err := regexp.Compile(`^(?:` + pattern + `)$`)
	return err == nil && re.MatchString(value)
}
