package problem

import "cmp"

// Bounds of the number of problems in a list: of one object, of one namespace, and in total. So an author of ten
// thousand faulty objects fills only the share of one namespace.
const (
	MostOfObject    = 20
	MostOfNamespace = 200
	Most            = 2000
)

// Bound removes the problems beyond the bounds from a list, and keeps the order. It keeps the first MostOfObject
// problems of each object, and then the first problems of each namespace, at most MostOfNamespace. If the total still
// exceeds Most, the limit for each namespace is lowered. The function of must return the namespace and the object of a
// problem. left counts the removed problems of each namespace; nil: nothing was removed. Bound does not change its
// argument; shown may be the same slice.
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

// share returns the number of problems that each namespace may keep, so that the total is at most Most. It tries
// MostOfNamespace, and then each time three quarters of the previous number. The result is at least one, even if the
// total is then too large.
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
