package meaning

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/store/cut"
)

// matched returns the text of the matcher for a header or query parameter with a name. If the name is that of a
// credential, matched returns only cut.Cut.
func matched(name string, s *matcherv3.StringMatcher) string {
	if cut.Key(name) {
		return cut.Cut
	}
	return cut.String(matcherText(s))
}

// matchKey returns a key for the comparison of two matches. The parameter text is the text of the match m. The key is
// this text. If the text omits a credential, a digest of m is appended.
func matchKey(m *routev3.RouteMatch, text string) string {
	if strings.Contains(text, cut.Cut) {
		return text + "\x00" + digest(m.ProtoReflect(), maxDepth)
	}
	return text
}

// credential adds the difference of a credential, without its values, or nothing if there is no difference. The
// parameters hadOld and hasNew report whether the old and the new value are set. The parameter changed reports whether
// the values differ.
func (d *differ) credential(path string, hadOld, hasNew, changed bool) {
	text := map[bool]string{true: cut.Cut}
	if hadOld != hasNew || changed {
		d.add(path, text[hadOld], text[hasNew])
	}
}

// isText reports whether a field is a string or a google.protobuf.Value.
func isText(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.StringKind || fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Value"
}
