package meaning

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// matchText describes the requests that a route matches. It starts with the path. The conditions on headers, query
// parameters and dynamic metadata follow in alphabetical order.
func matchText(m *routev3.RouteMatch) string {
	parts := []string{pathText(m)}
	if m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue() {
		parts[0] += " in any case"
	}
	var conditions []string
	for _, h := range m.GetHeaders() {
		conditions = append(conditions, headerText(h))
	}
	for _, q := range m.GetQueryParameters() {
		value := ""
		if s := q.GetStringMatch(); s != nil {
			value = "=" + matched(q.GetName(), s)
		}
		conditions = append(conditions, "?"+q.GetName()+value)
	}
	for _, d := range m.GetDynamicMetadata() {
		conditions = append(conditions, "metadata "+brief(d))
	}
	slices.Sort(conditions)
	return strings.Join(append(parts, conditions...), ", ")
}

// pathText describes the path of a match. The text of a prefix ends in "*".
func pathText(m *routev3.RouteMatch) string {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return p.Prefix + "*"
	case *routev3.RouteMatch_Path:
		return p.Path
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return p.PathSeparatedPrefix + "/*"
	case *routev3.RouteMatch_SafeRegex:
		return "regex " + p.SafeRegex.GetRegex()
	case *routev3.RouteMatch_ConnectMatcher_:
		return "CONNECT"
	}
	return brief(m)
}

// headerText describes a condition on a header. The text of an inverted condition begins with "not".
func headerText(h *routev3.HeaderMatcher) string {
	name := strings.TrimPrefix(h.GetName(), ":")
	if h.GetInvertMatch() {
		name = "not " + name
	}
	if s := h.GetStringMatch(); s != nil {
		return name + "=" + matched(h.GetName(), s)
	}
	return name
}

// matchesAll reports whether a match holds for every request.
func matchesAll(m *routev3.RouteMatch) bool {
	return m.GetPrefix() == "/" && len(m.GetHeaders())+len(m.GetQueryParameters())+len(m.GetDynamicMetadata()) == 0 &&
		m.GetGrpc() == nil && m.GetRuntimeFraction() == nil && m.GetTlsContext() == nil
}

// implies reports whether match b accepts every request that match a accepts. It returns false if it cannot decide.
func implies(a, b *routev3.RouteMatch) bool {
	return pathImplies(a, b) && b.GetGrpc() == nil && b.GetRuntimeFraction() == nil && b.GetTlsContext() == nil &&
		contains(a.GetHeaders(), b.GetHeaders()) && contains(a.GetQueryParameters(), b.GetQueryParameters()) &&
		contains(a.GetDynamicMetadata(), b.GetDynamicMetadata())
}

// contains reports whether the first list has all elements of the second list.
func contains[M proto.Message](all, some []M) bool {
	return !slices.ContainsFunc(some, func(want M) bool {
		return !slices.ContainsFunc(all, func(has M) bool { return proto.Equal(has, want) })
	})
}

// pathImplies reports whether match b accepts every path that match a accepts. It returns false if it cannot decide.
func pathImplies(a, b *routev3.RouteMatch) bool {
	foldA, foldB := insensitive(a), insensitive(b)
	if p, is := b.GetPathSpecifier().(*routev3.RouteMatch_Prefix); is && p.Prefix == "/" {
		return true // every path begins with "/"
	}
	if foldA && !foldB {
		return false
	}
	fold := func(s string) string {
		if foldB {
			return strings.ToLower(s)
		}
		return s
	}
	switch p := b.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		switch q := a.GetPathSpecifier().(type) {
		case *routev3.RouteMatch_Prefix:
			return strings.HasPrefix(fold(q.Prefix), fold(p.Prefix))
		case *routev3.RouteMatch_Path:
			return strings.HasPrefix(fold(q.Path), fold(p.Prefix))
		case *routev3.RouteMatch_PathSeparatedPrefix:
			return strings.HasPrefix(fold(q.PathSeparatedPrefix), fold(p.Prefix))
		}
	case *routev3.RouteMatch_Path:
		q, is := a.GetPathSpecifier().(*routev3.RouteMatch_Path)
		return is && fold(q.Path) == fold(p.Path)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		at := fold(p.PathSeparatedPrefix)
		switch q := a.GetPathSpecifier().(type) {
		case *routev3.RouteMatch_Path:
			return fold(q.Path) == at || strings.HasPrefix(fold(q.Path), at+"/")
		case *routev3.RouteMatch_PathSeparatedPrefix:
			return fold(q.PathSeparatedPrefix) == at || strings.HasPrefix(fold(q.PathSeparatedPrefix), at+"/")
		}
	case *routev3.RouteMatch_SafeRegex:
		q, is := a.GetPathSpecifier().(*routev3.RouteMatch_SafeRegex)
		return is && q.SafeRegex.GetRegex() == p.SafeRegex.GetRegex()
	}
	return false
}

// insensitive reports whether a match ignores the case of the path. Envoy ignores case_sensitive for regular
// expressions.
func insensitive(m *routev3.RouteMatch) bool {
	return m.GetSafeRegex() == nil && m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()
}

// disjoint reports whether no request can satisfy both matches. It returns false if it cannot decide.
func disjoint(a, b *routev3.RouteMatch) bool {
	if pathsDisjoint(a, b) || pathsDisjoint(b, a) {
		return true
	}
	for _, x := range a.GetHeaders() {
		for _, y := range b.GetHeaders() {
			if strings.EqualFold(x.GetName(), y.GetName()) && headersDisjoint(x, y) {
				return true
			}
		}
	}
	return false
}

// headersDisjoint reports whether no request can satisfy both conditions. Both must be about the same header. It
// returns false if it cannot decide.
func headersDisjoint(x, y *routev3.HeaderMatcher) bool {
	a, b := x.GetStringMatch(), y.GetStringMatch()
	if a == nil || b == nil || a.GetIgnoreCase() || b.GetIgnoreCase() || x.GetInvertMatch() && y.GetInvertMatch() {
		return false
	}
	if x.GetInvertMatch() != y.GetInvertMatch() {
		return proto.Equal(a, b)
	}
	if a.GetExact() != "" && b.GetExact() != "" {
		return a.GetExact() != b.GetExact()
	}
	return false
}

// pathsDisjoint reports whether no path can satisfy both matches. It decides only three cases: two exact paths, an
// exact path in a with a prefix in b, and two prefixes. In all other cases it returns false.
func pathsDisjoint(a, b *routev3.RouteMatch) bool {
	fold := func(s string) string { return s }
	if insensitive(a) || insensitive(b) {
		fold = strings.ToLower
	}
	switch p := a.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		switch q := b.GetPathSpecifier().(type) {
		case *routev3.RouteMatch_Path:
			return fold(p.Path) != fold(q.Path)
		case *routev3.RouteMatch_Prefix:
			return !strings.HasPrefix(fold(p.Path), fold(q.Prefix))
		}
	case *routev3.RouteMatch_Prefix:
		if q, is := b.GetPathSpecifier().(*routev3.RouteMatch_Prefix); is {
			x, y := fold(p.Prefix), fold(q.Prefix)
			return !strings.HasPrefix(x, y) && !strings.HasPrefix(y, x)
		}
	}
	return false
}
