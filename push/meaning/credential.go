package meaning

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/store/cut"
)

// matched returns the text of a matcher for the value of a header or parameter. If the name is that of a credential,
// matched returns cut.Cut.
func matched(name string, s *matcherv3.StringMatcher) string {
	if cut.Key(name) {
		return cut.Cut
	}
	return cut.String(matcherText(s))
}

// matchKey returns a key by which matches are compared. The key is text, the match's text. If the text omits the value
// of a credential, the key also has a digest of the match.
func matchKey(m *routev3.RouteMatch, text string) string {
	if strings.Contains(text, cut.Cut) {
		return text + "\x00" + digest(m.ProtoReflect(), maxDepth)
	}
	return text
}

// credential adds a difference in a credential, without the credential's values. was and is report whether the old and
// the new value are set, and changes reports whether they differ.
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
