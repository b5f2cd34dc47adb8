package normal

import (
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// The field goes before the annotation, and that before the Namespace's; an object that states none, or nothing that
// decides, refers to its Namespace.
func TestDistribution(t *testing.T) {
	const any, zone, node = model.Distribution_DISTRIBUTION_ANY, model.Distribution_DISTRIBUTION_SAME_ZONE, model.Distribution_DISTRIBUTION_SAME_NODE
	for _, c := range []struct {
		field, annotation, namespace string
		want                         model.Distribution
		refs, problems               int
	}{
		{"", "", "", any, 1, 0},
		{"", "", "PreferSameZone", zone, 1, 0},
		{"", "", "preferclose", zone, 1, 0},
		{"", "", "PreferFar", any, 1, 1},
		{"", "", "Any", any, 1, 0},
		{"", "PreferSameNode", "PreferSameZone", node, 0, 0},
		{"", "Any", "PreferSameZone", any, 0, 0},
		{"", "PreferFar", "PreferSameZone", any, 0, 1},
		{"PreferClose", "PreferSameNode", "PreferSameNode", zone, 0, 0},
		{"Unknown", "", "PreferSameNode", node, 1, 0},
	} {
		of := func(id object.ID, text string) *object.Object {
			o := &object.Object{ID: id}
			if text != "" {
				o.Annotations = map[string]string{DistributionAnnotation: text}
			}
			return o
		}
		ns, problems := ParseNamespace(of(object.ID{Kind: "Namespace", Name: "shop"}, c.namespace))
		r := &report{}
		got := distribution(r, c.field, of(object.ID{Kind: "Service", Namespace: "shop", Name: "x"}, c.annotation), &fake{spaces: map[string]*Namespace{"shop": ns}})
		if got != c.want || len(r.refs) != c.refs || len(problems)+len(r.problems) != c.problems {
			t.Errorf("%+v: %v, refs %v, problems %v %v", c, got, r.refs, problems, r.problems)
		}
	}
}
