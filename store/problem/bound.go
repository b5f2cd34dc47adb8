package problem

import "cmp"

// Bounds of a list of problems: of one object, of one namespace, and in total. An author of ten thousand faulty objects
// fills only the share of their own namespace.
const (
	MostOfObject    = 20
	MostOfNamespace = 200
	Most            = 2000
)

// Bound removes the problems beyond the bounds from a list, and keeps the order. If the total is too large, the
// namespaces with most problems lose some. of returns the namespace and object of a problem. left counts the removed
// problems of each namespace; nil: nothing was removed. all stays unchanged; shown may be the same slice.
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

// share returns the largest number of problems of each namespace, at least one, with which the total is at most Most.
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
