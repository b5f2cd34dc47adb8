package guard

import (
	"fmt"
	"iter"
	"maps"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
)

// objects is a source in memory, which emits what the guard does not hold.
type objects struct {
	guard        *Guard
	emitted, now map[object.ID]*object.Object
}

func newObjects() *objects {
	return &objects{New(false, nil), map[object.ID]*object.Object{}, map[object.ID]*object.Object{}}
}

func (o *objects) Emitted() iter.Seq2[object.ID, *object.Object] { return maps.All(o.emitted) }
func (o *objects) Now() iter.Seq[object.ID]                      { return maps.Keys(o.now) }
func (o *objects) Get(id object.ID) (emitted, now *object.Object) {
	return o.emitted[id], o.now[id]
}

// step puts these objects in place of all of a kind.
func (o *objects) step(at time.Time, kind string, names ...string) {
	var touched []object.ID
	for id := range o.now {
		if id.Kind == kind {
			touched = append(touched, id)
			delete(o.now, id)
		}
	}
	for _, name := range names {
		id := object.ID{Kind: kind, Namespace: "shop", Name: name}
		touched = append(touched, id)
		o.now[id] = &object.Object{ID: id, JSON: []byte("{}")}
	}
	for _, id := range append(touched, o.guard.Judge(at, o, touched)...) {
		switch {
		case o.guard.Holds(id):
		case o.now[id] == nil:
			delete(o.emitted, id)
		default:
			o.emitted[id] = o.now[id]
		}
	}
}

// However much comes and goes, what the guard remembers is bounded.
func TestMemoryOfLossesIsBounded(t *testing.T) {
	o, at := newObjects(), time.Unix(1000, 0)
	services := object.ID{Kind: "Service"}
	o.step(at, "Service", "a", "b", "c", "d", "e", "f", "g", "h")
	for i := range 1000 {
		o.step(at, "Service", "a", "b", "c", "d", "e", "f", "g", "h", fmt.Sprint("s", i))
		o.step(at, "Namespace", fmt.Sprint("n", i))
		at = at.Add(100 * time.Millisecond)
	}
	if n := len(o.guard.memory.vanished[services]); n == 0 || n > int(sumFor/time.Second) {
		t.Errorf("remembers %d losses of a kind", n)
	}
	at = at.Add(sumFor)
	o.step(at, "Service", "a", "b", "c", "d", "e", "f", "g")
	if held := o.guard.Held(); len(held) != 0 || len(o.guard.parents) > 2 || len(o.guard.memory.vanished[services]) > 1 {
		t.Errorf("%v held, remembers %d parents and %d losses", held, len(o.guard.parents), len(o.guard.memory.vanished[services]))
	}
}
