package mirror

import (
	"fmt"
	"testing"

	"navarch.io/navarch/store/model"
)

// Endpoints that did not change keep their pointers at any position; an edit of one endpoint among many allocates
// nothing for the others.
func TestSharedEndpoints(t *testing.T) {
	slice := func(from, n int) *model.Endpoints {
		spec := &model.EndpointsSpec{}
		for i := from; i < from+n; i++ {
			spec.Endpoints = append(spec.Endpoints, &model.Endpoint{Address: fmt.Sprint("10.0.0.", i), Labels: map[string]string{"a": "b"}})
		}
		return &model.Endpoints{Spec: spec}
	}
	kept := func(before, after *model.Endpoints) (n int) {
		old := map[*model.Endpoint]bool{}
		for _, e := range before.Spec.Endpoints {
			old[e] = true
		}
		for _, e := range shareEndpoints(before, after).(*model.Endpoints).Spec.Endpoints {
			if old[e] {
				n++
			}
		}
		return n
	}
	const n = 1000
	before, edited := slice(0, n), slice(0, n)
	edited.Spec.Endpoints[500].Health = model.Health_HEALTH_NOT_READY
	for what, c := range map[string]struct {
		after *model.Endpoints
		want  int
	}{
		"the same": {slice(0, n), n}, "one edited": {edited, n - 1}, "all moved": {slice(1, n), n - 1},
		"fewer": {slice(900, 50), 50}, "none": {slice(n, 10), 0},
	} {
		if got := kept(before, c.after); got != c.want {
			t.Errorf("%s: %d keep their pointers, want %d", what, got, c.want)
		}
	}
	if allocs := testing.AllocsPerRun(10, func() { shareEndpoints(before, edited) }); allocs > 20 {
		t.Errorf("%v allocations for an edit of one endpoint", allocs)
	}
}
