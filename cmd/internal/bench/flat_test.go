package bench

import (
	"runtime"
	"testing"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/store/model"
)

// The cost of planning and building an edit of one VirtualService does not grow with the number of services: its
// allocations, which would show copied lists, grow by less than a seventh from 500 to 4,000 services.
func TestEditAllocatesAlike(t *testing.T) {
	const scopes, edits = 3, 60
	allocated := map[int]float64{}
	for _, services := range []int{500, 4000} {
		w := mesh{services}
		snapshot := snapshotOf(w)
		planner := plan.New(plan.Settings{Snapshot: snapshot})
		for ns := range scopes {
			planner.Join(node(ns))
		}
		var before, after runtime.MemStats
		for i := range edits {
			change := snapshot.Apply(int64(i+2), []model.Record{w.virtualService(7, i)}, nil)
			snapshot = change.New
			runtime.ReadMemStats(&before)
			planner.Apply(change)
			runtime.ReadMemStats(&after)
			if i >= edits/2 { // the first edits fill tables
				allocated[services] += float64(after.TotalAlloc-before.TotalAlloc) / (edits / 2) / scopes
			}
		}
	}
	t.Logf("bytes for each edit and scope: %.0f with 500 services, %.0f with 4,000", allocated[500], allocated[4000])
	if allocated[4000] > 1.15*allocated[500] {
		t.Errorf("an edit of one VirtualService allocates %.0f bytes with 4,000 services, %.0f with 500", allocated[4000], allocated[500])
	}
}
