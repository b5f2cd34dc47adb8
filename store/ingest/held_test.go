package ingest

import (
	"fmt"
	"slices"
	"testing"

	"navarch.io/navarch/store/object"
)

// What the guard keeps is let go for exactly its objects, by the records that are theirs, and by a leader that has compared.
func TestReleaseOfWhatIsKept(t *testing.T) {
	d := newDesk(t)
	all := Objects{put(t, svc), synced}
	var ids []object.ID
	for i := range 6 {
		all = append(all, put(t, vs(fmt.Sprintf("v%d", i), "1s")))
	}
	for _, e := range all {
		if e.Op == object.Put {
			ids = append(ids, e.ID)
		}
	}
	d.step(all)
	d.step(Gained{d.epoch})

	d.s = NewState(Options{})
	release := func(what string, want bool, ids ...object.ID) {
		t.Helper()
		var losses []object.Loss
		for _, id := range ids {
			losses = append(losses, object.Loss{ID: id})
		}
		effects, ok := d.s.release(losses)
		if ok != want || !ok && len(effects) > 0 {
			t.Errorf("%s: %v, %d effects", what, ok, len(effects))
		}
		for _, e := range effects {
			d.commit(e.(Write).Batch)
			d.s.Step(Written{Epoch: d.epoch, After: 3})
		}
	}
	d.lead()
	release("before the comparison", false, ids...)
	d.want(Objects{synced}, "load")
	if n := len(d.s.heldObjects()); n != len(ids) {
		t.Fatalf("%d objects are kept, want %d", n, len(ids))
	}
	release("nothing", false)
	release("all but one", false, ids[1:]...)
	release("one twice", false, append(slices.Clone(ids[1:]), ids[1])...)
	release("one more", false, append(slices.Clone(ids), object.ID{Kind: "Service", Name: "x"})...)
	d.want(Objects{all[0]}) // it is back
	release("one that is back too", false, ids...)
	if len(d.stored) != len(ids) {
		t.Fatalf("%d records are left", len(d.stored))
	}
	release("exactly these", true, ids[1:]...)
	if len(d.stored) != 1 || len(d.s.Problems()) != 0 || len(d.s.heldObjects()) != 0 {
		t.Errorf("left: %v, problems %v", d.stored, d.s.Problems())
	}
	release("again", false, ids[1:]...)
	if _, ok := d.s.release([]object.Loss{{ID: ids[0], Version: "x"}}); ok {
		t.Error("a version of an object")
	}
	d.want(Lost{})
	release("who does not lead", false, ids...)
}
