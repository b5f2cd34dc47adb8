package host

import (
	"fmt"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Each of many subsets is found by its name, the oldest rule's if several have one name. If there are many, the search
// is by name and not by iteration.
func TestSubsetsByName(t *testing.T) {
	rule := func(created int64, n int) *model.DestinationRule {
		r := &model.DestinationRule{Spec: &networkingv1.DestinationRule{}}
		for r.Created = created; n > 0; n-- {
			r.Spec.Subsets = append(r.Spec.Subsets, &networkingv1.Subset{Name: fmt.Sprint("v", n)})
		}
		return r
	}
	for _, n := range []int{0, 1, manySubsets - 1, manySubsets, 500} {
		older, younger := rule(1, n), rule(2, n+3)
		merged := merge([]*model.DestinationRule{younger, older})
		if len(merged.subsets) != n+3 || len(merged.places) != 0 && len(merged.places) != n+3 || n >= manySubsets && merged.places == nil {
			t.Errorf("%d subsets, %d by name, of %d", len(merged.subsets), len(merged.places), n+3)
		}
		for i := range n + 5 {
			name, from := fmt.Sprint("v", i), older
			if i > n {
				from = younger
			}
			got, is := merged.subset(name)
			right := is && got.GetName() == name && got.rule == from && from.Spec.Subsets[got.index] == got.Subset
			if want := i > 0 && i <= n+3; is != want || is != right {
				t.Errorf("of %d: %s is %v, %v", n, name, got, is)
			}
		}
	}
}
