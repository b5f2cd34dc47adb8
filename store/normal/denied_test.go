package normal

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// The identities that the CA has revoked become one policy of the whole mesh, which no other object can replace or
// imitate.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestDenied(t *testing.T) {
	ids := []string{"spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/a/sa/b"}
	obj, err := NewDenied(ids)
	if err != nil {
		t.Fatal(err)
	}
	r := testNormal.Object(obj, &fake{})
	if r.Spoiled || len(r.Records) != 1 || !r.UsesMesh {
		t.Fatalf("%+v", r)
	}
	p, ok := r.Records[0].(*model.Policy)
	if !ok || p.Key != (model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "istio-system", Name: model.DeniedName}) || !p.Spec.GetMeshWide() || p.Spec.GetClosed() {
		t.Fatalf("%+v", r.Records[0])
	}
	if got := model.DeniedIdentities(p); !slices.Equal(got, []string{ids[1], ids[0]}) {
		t.Errorf("it denies %v", got)
	}
	if source := SourceObject(p.Key); source != DeniedID {
		t.Errorf("its source is %v", source)
	}
	none, err := NewDenied(nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := testNormal.Object(none, &fake{}); r.Spoiled || len(r.Records) != 0 {
		t.Errorf("of nobody: %+v", r)
	}
	for _, wrong := range []string{"cluster.local/ns/a/sa/b", "spiffe://*", ""} {
		obj, err := NewDenied([]string{wrong})
		if err != nil {
			t.Fatal(err)
		}
		if r := testNormal.Object(obj, &fake{}); !r.Spoiled || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, "is no SPIFFE ID") {
			t.Errorf("%q: %+v", wrong, r)
		}
	}
	if source := SourceObject(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "istio-system", Name: "denied-identities"}); source.Kind != "AuthorizationPolicy" || source == (object.ID{}) {
		t.Errorf("a user's policy comes from %v", source)
	}
}
