package problem

import (
	"fmt"
	"testing"
)

type one struct {
	namespace, object string
	i                 int
}

func ofOne(o one) (string, string) { return o.namespace, o.object }

// For any problems, a list has its bounds, in all, of each namespace and of each object. Omitted ones are counted, the
// order stays, and a namespace with few problems is listed completely beside those with many.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestBound(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces, objects, each int
		small                     int // listed of the namespace that has two
	}{
		"few": {2, 3, 2, 2}, "one object": {1, 1, 1000, 2}, "one namespace": {1, 5000, 2, 2}, "ten namespaces": {10, 1000, 1, 2}, "many namespaces": {150, 100, 1, 2},
		"more namespaces than lines": {3000, 1, 1, 1},
	} {
		all := []one{{"a-small-one", "a", 0}, {"a-small-one", "b", 1}}
		for n := range c.namespaces {
			for o := range c.objects {
				for range c.each {
					all = append(all, one{fmt.Sprintf("n%04d", n), fmt.Sprintf("n%04d/o%05d", n, o), len(all)})
				}
			}
		}
		shown, left := Bound(all, ofOne)
		last, ofNamespace, ofObject := -1, map[string]int{}, map[string]int{}
		for _, p := range shown {
			ofNamespace[p.namespace]++
			if ofObject[p.object]++; p.i <= last || ofObject[p.object] > MostOfObject || ofNamespace[p.namespace] > MostOfNamespace {
				t.Fatalf("%s: %+v after %d, %d of its object, %d of its namespace", name, p, last, ofObject[p.object], ofNamespace[p.namespace])
			}
			last = p.i
		}
		total := len(shown)
		for _, n := range left {
			total += n
		}
		if total != len(all) || len(shown) > Most || len(shown) < min(len(all), MostOfObject) || ofNamespace["a-small-one"] != c.small {
			t.Errorf("%s: %d are shown and %d left out of %d; %d of the small namespace", name, len(shown), total-len(shown), len(all), ofNamespace["a-small-one"])
		}
		if few := name == "few"; few != (left == nil) {
			t.Errorf("%s: left %v", name, left)
		}
		if name == "ten namespaces" && len(shown) < Most*3/4 {
			t.Errorf("%d are shown of ten namespaces", len(shown))
		}
	}
}
