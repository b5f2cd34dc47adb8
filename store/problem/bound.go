package problem

import "cmp"

// Bounds of a list of problems: for one object, for one namespace, and in total. With these bounds, many faulty objects
// in one namespace do not displace the problems of other namespaces.
const (
	MostOfObject    = 20
	MostOfNamespace = 200
	Most            = 2000
)

// Bound removes the problems beyond the bounds from a list, and keeps the order. First it removes the problems of an
// object beyond MostOfObject. After that, it removes the problems of a namespace beyond MostOfNamespace. If the total
// still exceeds Most, it lowers the limit for all namespaces. It removes the last problems of the list first. The
// function classify returns the namespace and the object of a problem. The first result has the kept problems, and may
// be the given slice itself. The second result has the number of removed problems of each namespace. It is nil if
// nothing was removed. Bound does not change the given slice.
func Bound[P any, O comparable](all []P, classify func(P) (namespace string, object O)) (shown []P, left map[string]int) {
	if len(all) <= MostOfObject {
		return all, nil
	}
	kept, ofObject, ofNamespace := make([]bool, len(all)), map[O]int{}, map[string]int{}
	for i, p := range all {
		namespace, object := classify(p)
		if ofObject[object] < MostOfObject {
			kept[i] = true
			ofNamespace[namespace]++
		}
		ofObject[object]++
	}
	sizes := make([]int, MostOfNamespace+1)
	for _, n := range ofNamespace {
		sizes[min(n, MostOfNamespace)]++
	}
	each := Share(sizes)
	taken := map[string]int{}
	for i, p := range all {
		namespace, _ := classify(p)
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

// Share returns the number of problems that each namespace may keep if the total is to be at most Most. It starts with
// MostOfNamespace, and reduces the number by a quarter in each step. The result is at least 1, even if the total is too
// large. The value sizes[n] is the number of namespaces with n problems.
func Share(sizes []int) int {
	for each := MostOfNamespace; ; each = cmp.Or(each*3/4, 1) {
		total := 0
		for n, namespaces := range sizes {
			total += namespaces * min(n, each)
		}
		if total <= Most || each == 1 {
			return each
		}
	}
}
