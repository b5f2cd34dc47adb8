package problem

import "cmp"

// How many problems a list has at most: of one object, of one namespace, in all. Whoever makes ten thousand objects that do not apply fills their own
// namespace's part of it.
const (
	MostOfObject    = 20
	MostOfNamespace = 200
	Most            = 2000
)

// Bound leaves out of a list what is beyond these numbers; where there are too many in all, those of the namespaces that have most. The order stays. of
// says whose a problem is; left is how many of each namespace were left out, nil: none.
func Bound[P any, O comparable](all []P, of func(P) (namespace string, object O)) (shown []P, left map[string]int) {
	if len(all) <= MostOfObject {
		return all, nil
	}
	kept, ofObject, ofNamespace := make([]bool, len(all)), map[O]int{}, map[string]int{}
	for i, p := range all {
		namespace, object := of(p)
		if ofObject[object] < MostOfObject {
			kept[i] = true
			ofNamespace[namespace]++
		}
		ofObject[object]++
	}
	each := share(ofNamespace)
	taken := map[string]int{}
	for i, p := range all {
		namespace, _ := of(p)
		if kept[i] && taken[namespace] < each && len(shown) < Most {
			taken[namespace]++
			shown = append(shown, p)
			continue
		}
		if left == nil {
			left = map[string]int{}
		}
		left[namespace]++
	}
	return shown, left
}

// share is how many of each namespace fit: the most with which all are no more than Most, and one at least.
func share(of map[string]int) int {
	for each := MostOfNamespace; ; each = cmp.Or(each*3/4, 1) {
		total := 0
		for _, n := range of {
			total += min(n, each)
		}
		if total <= Most || each == 1 {
			return each
		}
	}
}
