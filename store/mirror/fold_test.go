package mirror

import (
	"fmt"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

func value(t testing.TB, name string, port uint32) kv.Value {
	t.Helper()
	r, err := model.New(model.Key{Kind: model.KindService, Name: name}, 0, &model.ServiceSpec{Ports: []*model.ServicePort{{Number: port}}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := model.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return kv.Value{Path: r.Meta().Key.Path(), Raw: raw}
}

func listed(complete, head int64, values ...kv.Value) *kv.State {
	return &kv.State{At: kv.Position{Revision: complete}, Head: kv.Head{Revision: head, Complete: complete == head, LastComplete: complete}, Complete: complete, Values: values}
}

func names(s *Snapshot) (all string) {
	for r := range s.All(model.KindService) {
		all += fmt.Sprintf("%s=%d ", r.Meta().Key.Name, r.(*model.Service).Spec.Ports[0].Number)
	}
	return all
}

// A list replaces the staged part of a batch: records that the rest of the batch does not repeat are missing.
func TestListForgetsWhatWasStaged(t *testing.T) {
	f := newFold()
	f.load(listed(5, 5, value(t, "a", 1)))
	f.apply(kv.Update{Revision: 6, Head: &kv.Head{Revision: 6, LastComplete: 5}, Values: []kv.Value{value(t, "b", 1), value(t, "c", 1)}})
	c, ok := f.load(listed(9, 9, value(t, "a", 2), value(t, "b", 2)))
	if got := names(c.New); !ok || got != "a=2 b=2 " {
		t.Fatalf("got %s, %t", got, ok)
	}
}

// A value that did not decode and is gone from the list is no problem any more.
func TestListForgetsWhatDidNotDecode(t *testing.T) {
	f := newFold()
	f.load(listed(5, 5, value(t, "a", 1), kv.Value{Path: "Service///shop/x", Raw: []byte{}}))
	if p := f.missing(); len(p) != 1 || f.published {
		t.Fatalf("missing %v, published %t", p, f.published)
	}
	if c, ok := f.load(listed(9, 9, value(t, "a", 1))); !ok || len(f.problems()) != 0 || names(c.New) != "a=1 " || len(c.Edits) != 1 {
		t.Fatalf("problems %v, published %t", f.problems(), ok)
	}
}

// Within one batch only the final state counts.
func TestThereAndBackWithinABatch(t *testing.T) {
	f := newFold()
	first, _ := f.load(listed(5, 5, value(t, "a", 1), value(t, "b", 1)))
	f.apply(kv.Update{Revision: 6, Head: &kv.Head{Revision: 6, LastComplete: 5}, Values: []kv.Value{value(t, "a", 2), {Path: "Service////b"}, value(t, "c", 1)}})
	c, ok := f.apply(kv.Update{Revision: 7, Head: &kv.Head{Revision: 7, Complete: true, LastComplete: 5}, Values: []kv.Value{value(t, "a", 1), value(t, "b", 1), {Path: "Service////c"}}})
	if !ok || len(c.Edits) != 0 || c.Old != first.New || names(c.New) != "a=1 b=1 " {
		t.Fatalf("%v, %t: %s", c.Edits, ok, names(c.New))
	}
}

// An edit has the revision and time of the batch that wrote it. Those of an edit that was read from a list are unknown.
func TestEditsAreOfTheirBatches(t *testing.T) {
	f := newFold()
	f.load(listed(5, 5, value(t, "a", 1)))
	at := time.Unix(6, 0)
	head := &kv.Head{Revision: 6, Complete: true, LastComplete: 5, Time: at}
	c, ok := f.apply(kv.Update{Revision: 6, Head: head, Values: []kv.Value{value(t, "b", 1)}})
	if !ok || len(c.Edits) != 1 || c.Edits[0].In == nil || *c.Edits[0].In != (model.Span{First: 6, Last: 6, Since: at}) {
		t.Errorf("%+v", c.Edits)
	}
	if c, ok = f.load(listed(9, 9, value(t, "a", 2), value(t, "b", 1))); !ok || len(c.Edits) != 1 || c.Edits[0].In != nil {
		t.Errorf("%+v", c.Edits)
	}
}
