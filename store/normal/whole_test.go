package normal

import (
	"strings"
	"testing"
)

// The first error of a Gateway or VirtualService says that nothing of the object applies.
// Later errors do not repeat it.
func TestInvalidAsAWhole(t *testing.T) {
	for kind, c := range map[string]struct{ spec, parts string }{
		"VirtualService": {"{hosts: ['a b', 'c d'], " + oneRoute + "}", "rules"},
		"Gateway":        {"{servers: [{hosts: ['a b'], port: {number: 0, name: a, protocol: HTTP}}]}", "servers"},
	} {
		r := testNormal.Object(read(t, istio(kind, c.spec)), &fake{})
		whole := "; the whole object is invalid: none of its " + c.parts + " apply, and its last valid version, if any, stays in effect"
		if len(r.Problems) != 2 || !strings.HasSuffix(r.Problems[0].Message, whole) || strings.Contains(r.Problems[1].Message, whole) {
			t.Errorf("%s: %v", kind, r.Problems)
		}
	}
}
