package walk

import (
	"regexp"
	"slices"
	"strings"

	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// store sets a key in the dynamic metadata under a filter's name.
func (w *walker) store(filter, key string, value any) {
	of, _ := w.metadata[filter].(map[string]any)
	if of == nil {
		of = map[string]any{}
	}
	of[key] = value
	set(&w.metadata, filter, any(of))
}

// at returns the value at a path of names in a decoded JSON value, or nil if there is no value at the path.
func at(value any, path []string) any {
	for _, name := range path {
		of, is := value.(map[string]any)
		if !is {
			return nil
		}
		value = of[name]
	}
	return value
}

// metadataMatches reports whether a matcher accepts the dynamic metadata.
func (w *walker) metadataMatches(m *matcherv3.MetadataMatcher) bool {
	path := []string{m.GetFilter()}
	for _, segment := range m.GetPath() {
		path = append(path, segment.GetKey())
	}
	return valueMatches(m.GetValue(), at(w.metadata, path)) != m.GetInvert()
}

// valueMatches reports whether a matcher accepts a decoded JSON value. A nil value means that the value is missing.
func valueMatches(m *matcherv3.ValueMatcher, value any) bool {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		text, is := value.(string)
		return is && stringMatches(p.StringMatch, text)
	case *matcherv3.ValueMatcher_PresentMatch:
		return p.PresentMatch && value != nil
	case *matcherv3.ValueMatcher_BoolMatch:
		b, is := value.(bool)
		return is && b == p.BoolMatch
	case *matcherv3.ValueMatcher_DoubleMatch:
		n, is := value.(float64)
		if r := p.DoubleMatch.GetRange(); r != nil {
			return is && n >= r.GetStart() && n < r.GetEnd()
		}
		return is && n == p.DoubleMatch.GetExact()
	case *matcherv3.ValueMatcher_ListMatch:
		list, is := value.([]any)
		return is && slices.ContainsFunc(list, func(one any) bool { return valueMatches(p.ListMatch.GetOneOf(), one) })
	case *matcherv3.ValueMatcher_OrMatch:
		return slices.ContainsFunc(p.OrMatch.GetValueMatchers(), func(one *matcherv3.ValueMatcher) bool { return valueMatches(one, value) })
	}
	return false
}

// templateMatches reports whether a path without its query matches a URI template. In the template, * is one segment,
// and ** any number of segments.
func templateMatches(config *anypb.Any, path string) bool {
	template := &templatev3.UriTemplateMatchConfig{}
	if !config.MessageIs(template) || config.UnmarshalTo(template) != nil {
		return false
	}
	const literal = "\x00"
	text := strings.NewReplacer("**", literal+"**", "*", literal+"*").Replace(template.GetPathTemplate())
	var pattern strings.Builder
	for i, part := range strings.Split(text, literal) {
		switch rest, many := strings.CutPrefix(part, "**"); {
		case i == 0:
			pattern.WriteString(regexp.QuoteMeta(part))
		case many:
			pattern.WriteString(".*" + regexp.QuoteMeta(rest))
		default:
			pattern.WriteString("[^/]+" + regexp.QuoteMeta(part[1:]))
		}
	}
	return fullMatch(pattern.String(), path)
}
