package meaning

import (
	"maps"
	"net/url"
	"regexp/syntax"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/walk"
)

// samples returns requests to a host that a match accepts, as maps of headers. The result is empty if no such request
// was found, for example for a match on dynamic metadata.
func samples(m *routev3.RouteMatch, host string) (all []map[string]string) {
	headers := map[string]string{":authority": host, ":method": "GET", ":scheme": "http"}
	for _, h := range m.GetHeaders() {
		if h.GetInvertMatch() {
			continue // the request does not get the header
		}
		value := "x"
		if s := h.GetStringMatch(); s != nil {
			value = sampleOf(s)
		}
		headers[strings.ToLower(h.GetName())] = value
	}
	query := url.Values{}
	for _, q := range m.GetQueryParameters() {
		value := "x"
		if s := q.GetStringMatch(); s != nil {
			value = sampleOf(s)
		}
		query.Set(q.GetName(), value)
	}
	for _, path := range samplePaths(m) {
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		one := maps.Clone(headers)
		if one[":path"] = path; walk.Matches(m, one) {
			all = append(all, one)
		}
	}
	return all
}

// samplePaths returns paths that a match probably accepts.
func samplePaths(m *routev3.RouteMatch) []string {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return []string{p.Prefix, strings.TrimSuffix(p.Prefix, "/") + "/x"}
	case *routev3.RouteMatch_Path:
		return []string{p.Path}
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return []string{p.PathSeparatedPrefix, p.PathSeparatedPrefix + "/x"}
	case *routev3.RouteMatch_SafeRegex:
		return []string{example(p.SafeRegex.GetRegex())}
	}
	return nil
}

// sampleOf returns a value that a matcher probably accepts.
func sampleOf(m *matcherv3.StringMatcher) string {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return p.Exact
	case *matcherv3.StringMatcher_Prefix:
		return p.Prefix
	case *matcherv3.StringMatcher_Suffix:
		return p.Suffix
	case *matcherv3.StringMatcher_Contains:
		return p.Contains
	case *matcherv3.StringMatcher_SafeRegex:
		return example(p.SafeRegex.GetRegex())
	}
	return ""
}

// maxExample is a length in bytes. Once an example of a regular expression is longer, nothing more is appended to it.
const maxExample = 1000

// example returns a text that a regular expression probably matches. For an invalid expression it returns "".
func example(expression string) string {
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return ""
	}
	var b strings.Builder
	writeExample(&b, re)
	return b.String()
}

// writeExample appends an example of a parsed expression.
func writeExample(b *strings.Builder, re *syntax.Regexp) {
	if b.Len() > maxExample {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			b.WriteRune(preferred(re.Rune))
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
	case syntax.OpCapture, syntax.OpPlus:
		writeExample(b, re.Sub[0])
	case syntax.OpRepeat:
		for range min(re.Min, maxExample) {
			writeExample(b, re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			writeExample(b, sub)
		}
	case syntax.OpAlternate:
		writeExample(b, re.Sub[0])
	default: // the example is the empty text
	}
}

// preferred returns x, a, 0 or A if a class of characters contains one of them, in this order of preference. If not, it
// returns the first character of the class. The parameter class lists the lower and upper bounds of ranges in turn.
func preferred(class []rune) rune {
	for _, want := range "xa0A" {
		for i := 0; i+1 < len(class); i += 2 {
			if class[i] <= want && want <= class[i+1] {
				return want
			}
		}
	}
	return class[0]
}

// first returns the index of the first route that matches a request. If no route matches, it returns -1.
func first(vh *routev3.VirtualHost, headers map[string]string) int {
	for i, r := range vh.GetRoutes() {
		if walk.Matches(r.GetMatch(), headers) {
			return i
		}
	}
	return -1
}
