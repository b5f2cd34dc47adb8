package meaning

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/store/cut"
)

// matched returns the text of a matcher of a header's or parameter's value. It returns cut.Cut if the name is one of
// a credential.
func matched(name string, s *matcherv3.StringMatcher) string {
	if cut.Key(name) {
		return cut.Cut
	}
	return cut.String(matcherText(s))
}

// matchKey returns a text that is equal for matches with equal texts, unless the values differ that the text lacks.
func matchKey(m *routev3.RouteMatch, text string) string {
	if strings.Contains(text, cut.Cut) {
		return text + "\x00" + digest(m.ProtoReflect(), maxDepth)
	}
	return text
}

// credential adds a difference in a credential without its values.
func (d *differ) credential(path string, was, is, changes bool) {
	text := map[bool]string{true: cut.Cut}
	if was != is || changes {
		d.add(path, text[was], text[is])
	}
}

// isText reports whether a value is a text, or of any type of JSON.
func isText(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.StringKind || fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Value"
}
