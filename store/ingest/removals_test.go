package ingest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/removal"
)

// lost is a Delete event with its reason.
func lost(e object.Event, why object.Why) object.Event {
	e = gone(e)
	e.Why = why
	return e
}

// ofOrigin has events be of another origin.
func ofOrigin(o origin.Origin, events ...object.Event) (all Objects) {
	for _, e := range events {
		if e.ID.Origin = o; e.Object != nil {
			moved := *e.Object
			moved.ID.Origin = o
			e.Object = &moved
		}
		all = append(all, e)
	}
	return all
}

func ofNamespace(namespace, text string) string {
	return strings.ReplaceAll(text, "namespace: shop", "namespace: "+namespace)
}

// routes are VirtualServices of a namespace.
func routes(t *testing.T, namespace string, n int) (all []object.Event) {
	for i := range n {
		all = append(all, put(t, ofNamespace(namespace, vs(fmt.Sprint(namespace, i), "1s"))))
	}
	return all
}

// allow is an ALLOW policy of a namespace.
func allow(t *testing.T, namespace string) object.Event {
	return put(t, ofNamespace(namespace, policy("{rules: [{}]}")))
}

// Removals that the API server reports are obeyed at once, whatever else is removed. Objects lost with the definition
// of their kind are held, and so are objects that a rewound list lacks. Held removals are shown, and take effect when
// they are accepted; an object that returns is held no longer.
func TestWhatIsHeldByReason(t *testing.T) {
	kube := origin.New("", origin.Kube)
	for why, held := range map[object.Why]int{object.Deleted: 0, object.Undefined: 6, object.Rewound: 6, object.Unread: 6} {
		d := newDesk(t)
		d.s = NewState(Options{Sources: []origin.Origin{kube}, HeldFor: time.Minute})
		all := append(routes(t, "shop", 6), put(t, svc), synced)
		d.step(ofOrigin(kube, all...))
		d.step(Gained{Epoch: d.epoch})
		var deletes []object.Event
		for _, e := range all[:6] {
			deletes = append(deletes, lost(e, why))
		}
		d.step(ofOrigin(kube, deletes...))
		if n := len(d.s.removals.book.Objects()); n != held || len(d.stored) != 1+held {
			t.Errorf("%s: %d are held, %d stored, want %d held", why, n, len(d.stored), held)
		}
		if held == 0 {
			continue
		}
		holds := d.s.removals.book.Holds()
		if len(holds) != 1 || !holds[0].Waits || holds[0].Kinds["VirtualService"] != 6 || !holds[0].Ends.IsZero() {
			t.Errorf("%s: %+v, want one that waits, for everything of the kind is gone", why, holds)
		}
		if p := d.s.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, holds[0].ID) {
			t.Errorf("%s: problems %v", why, p)
		}
		d.step(ofOrigin(kube, all[0])) // it is back
		if _, _, ok := d.s.accept("no such"); ok {
			t.Error("what nobody holds is accepted")
		}
		effects, _, ok := d.s.accept(holds[0].ID)
		if !ok {
			t.Fatalf("%s: not accepted", why)
		}
		for _, e := range effects {
			d.commit(e.(Write).Batch)
			d.s.Step(Written{Epoch: d.epoch, After: 3})
		}
		if len(d.stored) != 2 || len(d.s.Problems()) != 0 {
			t.Errorf("%s: %d records are left, problems %v", why, len(d.stored), d.s.Problems())
		}
		if _, _, ok := d.s.accept(holds[0].ID); ok {
			t.Errorf("%s: accepted twice", why)
		}
	}
}

// Removals of one tenant, in any number, do not hold those of another: 60 objects of one namespace are removed in the
// same second as another's ALLOW policy, from a cluster and from a folder, under one leader and while no process leads.
// Promise: security-tenants.md#remove-many-objects
func TestTenantHoldsNoOther(t *testing.T) {
	for _, o := range []origin.Origin{{}, origin.New("", origin.Kube)} {
		why := map[bool]object.Why{true: object.Missing, false: object.Deleted}[o == origin.Origin{}]
		var before, after Objects
		big := routes(t, "big", 60)
		for i := range 60 {
			big = append(big, put(t, strings.Replace(ofNamespace("big", policy("{rules: [{}]}")), "name: p", fmt.Sprint("name: p", i), 1)))
		}
		before = append(before, big...)
		before = append(before, allow(t, "small"), put(t, svc))
		after = append(after, put(t, svc), synced)
		d := newDesk(t)
		d.s = NewState(Options{Sources: []origin.Origin{o}})
		d.step(ofOrigin(o, append(slices.Clone(before), synced)...))
		d.step(Gained{Epoch: d.epoch})
		policyIsStored := func() bool {
			for key := range d.stored {
				if key.Namespace == "small" {
					return true
				}
			}
			return false
		}
		if !policyIsStored() {
			t.Fatal("the policy is not stored at first")
		}
		was := d.stored
		var deletes Objects
		for _, e := range before[:len(before)-1] {
			deletes = append(deletes, lost(e, why))
		}
		d.stored = maps.Clone(was)
		if d.step(ofOrigin(o, deletes...)); policyIsStored() {
			t.Errorf("%v: the ALLOW policy of another namespace stands, for %v", o, d.s.removals.book.Holds())
		}
		d.stored = maps.Clone(was)
		d.s = NewState(Options{Sources: []origin.Origin{o}})
		d.step(ofOrigin(o, after...))
		if d.step(Gained{Epoch: kv.Epoch{Key: "leader", Revision: 9}}); policyIsStored() {
			t.Errorf("%v: under the next leader the ALLOW policy of another namespace stands, for %v", o, d.s.removals.book.Holds())
		}
	}
}

// A new leader obeys complete lists, holds objects that could not be listed, and continues the holds of the previous
// leader, even if the kind can be listed again.
// Promise: security-tenants.md#remove-many-objects
func TestNewLeaderKnowsWhatWasHeld(t *testing.T) {
	kube := origin.New("", origin.Kube)
	kinds := func(names ...string) object.Event {
		e := synced
		for _, name := range names {
			group := "networking.istio.io"
			if name == "Service" {
				group = ""
			}
			e.Kinds = append(e.Kinds, object.ID{Group: group, Kind: name})
		}
		return e
	}
	all := append(routes(t, "shop", 6), put(t, svc))
	begin := func(held []removal.Hold, events ...object.Event) *desk {
		d := newDesk(t)
		d.s = NewState(Options{Sources: []origin.Origin{kube}})
		d.step(ofOrigin(kube, append(slices.Clone(all), kinds("Service", "VirtualService"))...))
		d.step(Gained{Epoch: d.epoch})
		d.s = NewState(Options{Sources: []origin.Origin{kube}, HeldFor: time.Minute})
		d.epoch.Revision++
		d.now = time.Unix(1e6, 0)
		d.step(ofOrigin(kube, events...))
		d.step(Gained{d.epoch, held})
		return d
	}
	d := begin(nil, all[0], all[6], kinds("Service", "VirtualService"))
	if len(d.stored) != 2 {
		t.Errorf("a complete list: %d records are left", len(d.stored))
	}
	d = begin(nil, all[6], kinds("Service"))
	holds := d.s.removals.book.Holds()
	if len(d.stored) != 7 || len(holds) != 1 || holds[0].Why != object.Unread || !holds[0].Waits {
		t.Fatalf("a kind that is not served: %d records are left, held %+v", len(d.stored), holds)
	}
	if same := begin(holds, all[6], kinds("Service")).s.removals.book.Holds(); len(same) != 1 || same[0].ID != holds[0].ID {
		t.Errorf("the same objects under the next leader: %+v, before %+v", same, holds)
	}
	d.step(ofOrigin(kube, all[0]))
	again := begin(d.s.removals.book.Holds(), all[0], all[6], kinds("Service", "VirtualService"))
	next := again.s.removals.book.Holds()
	if len(again.stored) != 7 || len(next) != 1 || next[0].Count != 5 || !next[0].Since.Equal(holds[0].Since) {
		t.Errorf("the definition is back, under the next leader: %d records are left, held %+v, before %+v", len(again.stored), next, holds)
	}
	if effects, _, ok := again.s.accept(next[0].ID); !ok || len(effects) != 1 || len(effects[0].(Write).Batch.Deletes) != 5 {
		t.Errorf("accepted: %v, %d effects", ok, len(effects))
	}
	if d = begin(nil, kinds("Service", "VirtualService")); len(d.stored) != 7 {
		t.Errorf("nothing of the cluster is there, as where another one is read: %d records are left", len(d.stored))
	}
}

// Objects that return together end their holds by one pass over the held objects, not by one for each.
func TestManyComeBack(t *testing.T) {
	const n = 1000
	kube := origin.New("", origin.Kube)
	whole := synced
	whole.Kinds = []object.ID{}
	all := routes(t, "shop", n)
	d := newDesk(t)
	d.s = NewState(Options{Sources: []origin.Origin{kube}})
	d.step(ofOrigin(kube, append(slices.Clone(all), whole)...))
	d.step(Gained{Epoch: d.epoch})
	d.s = NewState(Options{Sources: []origin.Origin{kube}})
	d.epoch.Revision++
	d.step(ofOrigin(kube, whole))
	d.step(Gained{Epoch: d.epoch})
	if len(d.s.removals.keys) != n {
		t.Fatalf("%d records are held", len(d.s.removals.keys))
	}
	d.step(ofOrigin(kube, all...))
	if looks := d.s.removals.walks; len(d.s.removals.keys)+len(d.s.removals.book.Objects()) != 0 || looks != 1 {
		t.Errorf("%d records are held of objects that are back, after %d looks at them", len(d.s.removals.keys), looks)
	}
}

// At the end of a term held removals are dropped: a process that does not lead knows only the objects of its sources.
func TestHeldEndsWithTheTerm(t *testing.T) {
	d := newDesk(t)
	all := append(routes(t, "shop", 6), put(t, svc), synced)
	d.step(Objects(all))
	d.step(Gained{Epoch: d.epoch})
	var deletes Objects
	for _, e := range all[:6] {
		deletes = append(deletes, lost(e, object.Missing))
	}
	d.step(deletes)
	held := d.s.removals.book.Holds()
	if len(held) != 1 || held[0].Count != 6 || held[0].Namespace != "shop" {
		t.Fatalf("held %+v", held)
	}
	d.step(Lost{})
	if d.s.inventory.objects.Len() != 1 || len(d.s.removals.book.Objects()) != 0 {
		t.Errorf("%d objects are known, %v are held", d.s.inventory.objects.Len(), d.s.removals.book.Objects())
	}
	d.epoch.Revision++
	if d.step(Gained{d.epoch, held}); len(d.stored) != 7 || len(d.s.removals.book.Objects()) != 6 {
		t.Errorf("the next term: %d are stored, held %v", len(d.stored), d.s.removals.book.Objects())
	}
}
