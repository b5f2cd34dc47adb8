package mirror_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// For any lag of a consumer, its changes lead from its state to the present one: nothing is lost, and the changes
// contain differences only, except for records that were replaced by equal ones.
func TestLaggingConsumerLosesNothing(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		box := loop.NewBox(mirror.Merge)
		now := mirror.Empty()
		follower := map[model.Key]model.Record{}
		at := now
		for step := range 60 {
			puts, deletes := randomBatch(t, r)
			c := now.Apply(int64(step+1), puts, deletes)
			c.Committed = time.Unix(int64(step), 0)
			now = c.New
			box.Put(c)
			if r.IntN(4) != 0 && step != 59 {
				continue
			}
			change, _ := box.Take()
			if change.Old != at || change.New != now || change.Committed.Unix() != at.Revision() {
				t.Fatalf("seed %d: notified of %d to %d, committed %v", seed, change.Old.Revision(), change.New.Revision(), change.Committed)
			}
			at = now
			if err := follow(follower, change); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// randomBatch returns up to seven records with distinct keys, a third of them as deletions.
func randomBatch(t *testing.T, r *rand.Rand) (puts []model.Record, deletes []model.Key) {
	in := map[model.Key]bool{}
	for range r.IntN(8) {
		one := randomRecord(t, r)
		if in[one.Meta().Key] {
			continue
		}
		in[one.Meta().Key] = true
		if r.IntN(3) == 0 {
			deletes = append(deletes, one.Meta().Key)
		} else {
			puts = append(puts, one)
		}
	}
	return puts, deletes
}

// follow applies a change to a consumer's records, and returns an error unless the result has all present records, in
// order, as the same pointers, and the change contains differences only.
func follow(follower map[model.Key]model.Record, change mirror.Change) error {
	if !slices.IsSortedFunc(change.Edits, func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) }) {
		return errors.New("not in order")
	}
	differs := map[model.Key]bool{}
	for _, e := range mirror.Diff(change.Old, change.New).Edits {
		differs[e.Key()] = true
	}
	for _, e := range change.Edits {
		if follower[e.Key()] != e.Old && (e.Old != nil || follower[e.Key()] != nil) {
			return fmt.Errorf("%v was another record", e.Key())
		}
		if same := e.Old != nil && e.New != nil && e.Old.Meta().Hash == e.New.Meta().Hash; !same && !differs[e.Key()] {
			return fmt.Errorf("%v does not differ", e.Key())
		}
		if e.New == nil {
			delete(follower, e.Key())
		} else {
			follower[e.Key()] = e.New
		}
	}
	n := 0
	for _, kind := range model.Kinds() {
		for rec := range change.New.All(kind) {
			n++
			if follower[rec.Meta().Key] != rec {
				return fmt.Errorf("the follower has another pointer for %v", rec.Meta().Key)
			}
		}
	}
	if n != len(follower) {
		return fmt.Errorf("the follower has %d records of %d", len(follower), n)
	}
	return nil
}

func TestSubscribeLateGetsAll(t *testing.T) {
	f := newFake(t)
	m := start(t, f)
	m.reach(9)
	box, stop := m.Subscribe()
	c, ok := box.Take()
	if !ok || len(c.Edits) != 1 || c.Edits[0].Old != nil || c.New != m.Current() || c.Old.Revision() != 0 {
		t.Fatalf("got %+v", c)
	}
	stop()
	w := receive(t, "the watch", f.watches)
	w <- update(12, 9)
	m.reach(12)
	if _, ok := box.Take(); ok {
		t.Fatal("change after the subscription ended")
	}
}
