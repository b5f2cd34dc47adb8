//go:build !race

package ingest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// emitted is an object, and the record that it makes.
type emitted struct {
	object.Event
	hash model.Hash
}

// randomSource emits random changes, and checks what readers of the store can see of them.
type randomSource struct {
	*desk
	*rand.Rand
	known  map[string]emitted         // by text
	past   map[model.Key][]model.Hash // the wanted hashes of a record, change by change; zero: deleted
	emits  []map[model.Key]int        // the newest, and from where on they are in past
	flying *Write
	load   *Load
	term   int64
	after  int64
	whole  bool // no batch was left half done
	done   map[Outcome]int

	others  map[model.Key]model.Hash // hashes of records that other writers changed; zero: deleted
	pending []Foreign                // that the leader does not know of yet
	mended  int
}

// change makes another writer change, remove or add a record.
func (r *randomSource) change() {
	key := model.Key{Kind: model.KindVirtualService, Namespace: fmt.Sprint("n", r.IntN(4)), Name: fmt.Sprintf("r%02d", r.IntN(33))}
	v := kv.Value{Path: key.Path()}
	if r.IntN(2) == 0 {
		v.Raw = fmt.Appendf(nil, "foreign %d", r.IntN(9))
	}
	if r.others[key] = v.Hash(); r.others[key] == r.stored[key] {
		delete(r.others, key)
	}
	r.pending = append(r.pending, Foreign{Values: []kv.Value{v}})
}

// notify passes the changes of other writers to the leader, in their order, all or some.
func (r *randomSource) notify(all bool) {
	for len(r.pending) > 0 {
		e := r.pending[0]
		r.pending, e.Epoch = r.pending[1:], kv.Epoch{Key: "leader", Revision: r.term}
		if r.do(r.s.Step(e)); !all && r.IntN(2) == 0 {
			return
		}
	}
}

// contents computes from scratch the contents that the leader has stored, without changes by others.
func (r *randomSource) contents() kv.Contents {
	c := kv.NewContents()
	for key, hash := range r.stored {
		c.Replace(key.Path(), model.Hash{}, hash)
	}
	return c
}

// write executes a batch, or a part of it, and returns the contents in its head.
func (r *randomSource) write(b kv.Batch) kv.Contents {
	said := b.Stored.Clone()
	for _, one := range b.Puts {
		key := one.Meta().Key
		said.Replace(key.Path(), b.Was[key], one.Meta().Hash)
		if _, is := r.others[key]; is {
			r.mended++
		}
		delete(r.others, key)
	}
	for _, key := range b.Deletes {
		said.Replace(key.Path(), b.Was[key], model.Hash{})
		delete(r.others, key)
	}
	for _, v := range b.Restore {
		r.t.Fatalf("%s is put back, and an object says what it is", v.Path)
	}
	r.commit(b)
	return said
}

// emit makes a change of some records of some namespaces, a few of them as they were before.
func (r *randomSource) emit() Objects {
	var o Objects
	touched := map[model.Key]int{}
	spaces := 1
	if r.IntN(5) == 0 {
		spaces = 2
	}
	for range spaces {
		namespace := fmt.Sprint("n", r.IntN(4)*r.IntN(2)) // the first is noisy
		for range 1 + r.IntN(4)*r.IntN(8) {
			name := fmt.Sprintf("r%02d", r.IntN(30))
			key := model.Key{Kind: model.KindVirtualService, Namespace: namespace, Name: name}
			text := in(namespace, vs(name, fmt.Sprintf("%ds", 1+r.IntN(10))))
			if r.IntN(3) == 0 {
				key.Kind = model.KindEndpoints
				text = in(namespace, epSlice(name, fmt.Sprintf("10.0.0.%d", 1+r.IntN(10)), "p"))
			}
			if _, twice := touched[key]; twice {
				continue
			}
			one, known := r.known[text]
			if !known {
				one.Event = put(r.t, text)
				records, problems := Records(Objects{one.Event}, Options{}.Normal)
				if len(records) != 1 {
					r.t.Fatal(problems)
				}
				one.hash = records[0].Meta().Hash
				r.known[text] = one
			}
			e, hash := one.Event, one.hash
			if r.past[key] == nil {
				r.past[key] = []model.Hash{{}}
			}
			if last := r.past[key][len(r.past[key])-1]; r.IntN(4) == 0 && last != (model.Hash{}) {
				e, hash = gone(e), model.Hash{}
			}
			touched[key] = len(r.past[key])
			r.past[key] = append(r.past[key], hash)
			o = append(o, e)
		}
	}
	if r.emits = append(r.emits, touched); len(r.emits) > 100 {
		r.emits = r.emits[1:]
	}
	return o
}

// do records effects: at most one load or write is in progress.
func (r *randomSource) do(effects []Effect) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case Load:
			r.load = &e
		case Write:
			if r.flying != nil && r.flying.Batch.Epoch == e.Batch.Epoch {
				r.t.Fatal("two writes at once")
			}
			r.flying = &e
		}
	}
}

// answer ends the write or load that is under way, if there is one, somehow.
func (r *randomSource) answer(well bool) {
	if l := r.load; l != nil {
		r.load, r.pending = nil, nil
		// etcd has the revision of the head, and the watch from there delivers changes of others; or the revision is
		// compacted
		for key, hash := range r.others {
			switch {
			case r.term%2 == 0:
				v := kv.Value{Path: key.Path()}
				if hash != (model.Hash{}) {
					v.Raw = hash[:]
				}
				r.others[key] = v.Hash()
				r.pending = append(r.pending, Foreign{Values: []kv.Value{v}})
			case hash == model.Hash{}:
				delete(r.stored, key)
				delete(r.others, key)
			default:
				r.stored[key] = hash
				delete(r.others, key)
			}
		}
		r.do(r.s.Step(Loaded{Epoch: l.Epoch, Have: maps.Clone(r.stored), After: r.after, Complete: r.whole, Contents: r.contents()}))
		return
	}
	w := r.flying
	if r.flying = nil; w == nil {
		return
	}
	outcome := Done
	if n := r.IntN(20); !well && n < 2 {
		outcome = []Outcome{Unknown, Deposed}[n]
	}
	r.done[outcome]++
	if outcome == Done {
		if r.after != w.Batch.After {
			r.t.Fatalf("a batch after %d, the head is at %d", w.Batch.After, r.after)
		}
		said := r.write(w.Batch)
		if differ := said.Differ(r.contents()); len(differ) > 0 || !said.Known() {
			r.t.Fatalf("the head says of %v what is not stored", differ)
		}
		r.after, r.whole = r.after+1, true
		r.see()
		r.do(r.s.Step(Written{Epoch: w.Batch.Epoch, After: r.after, Contents: said}))
		return
	} else { // some of it was written
		part := w.Batch
		part.Puts, part.Deletes = part.Puts[:r.IntN(len(part.Puts)+1)], nil
		r.write(part)
		r.after, r.whole = r.after+1, false
	}
	r.do(r.s.Step(Written{Epoch: w.Batch.Epoch, Outcome: outcome, After: r.after}))
	if outcome == Deposed {
		r.gain()
	}
}

// gain begins a term; results of effects of the previous term are dropped.
func (r *randomSource) gain() {
	r.term++
	r.flying, r.load = nil, nil
	r.do(r.s.Step(Gained{Epoch: kv.Epoch{Key: "leader", Revision: r.term}}))
}

// see reads the store as a replica does: of one change, never is one record in its previous version and another in that
// of the change or a later one.
func (r *randomSource) see() {
	for i, emit := range r.emits {
		before, since := 0, 0
		for key, from := range emit {
			old, now := slices.Contains(r.past[key][:from], r.stored[key]), slices.Contains(r.past[key][from:], r.stored[key])
			if !old && !now {
				r.t.Fatalf("%v is stored as it never was", key)
			}
			if old && !now {
				before++
			} else if now && !old {
				since++
			}
		}
		if before > 0 && since > 0 {
			r.t.Fatalf("change %d of %d of %d records is half there: %d are of before, %d are not", i, len(r.emits), len(emit), before, since)
		}
	}
}

// Random changes, some of which share records, with writes that succeed, fail or have an unknown outcome: no reader
// sees a part of a change, and in the end everything is stored.
func TestRandomChanges(t *testing.T) {
	var done [3]int
	mended := 0
	known := map[string]emitted{}
	for seed := range uint64(12) {
		r := &randomSource{desk: newDesk(t), Rand: rand.New(rand.NewPCG(seed, 1)), known: known,
			past: map[model.Key][]model.Hash{}, others: map[model.Key]model.Hash{}, whole: true, done: map[Outcome]int{}}
		r.s.removals.allowEmpty = true // records that others added are no removal by a user
		r.do(r.s.Step(Objects{synced}))
		r.gain()
		for range 150 {
			switch n := r.IntN(10); {
			case n < 5:
				var emits Emits
				for range 1 + r.IntN(2)*r.IntN(6) {
					emits = append(emits, Emit{Objects: r.emit()})
				}
				r.do(r.s.Step(emits))
			case n < 8:
				r.answer(false)
			case n < 9:
				r.do(r.s.Step(Due{}))
				r.change()
				r.notify(false)
			case r.IntN(20) == 0:
				r.do(r.s.Step(Lost{}))
				r.gain()
			}
		}
		for range 500 {
			r.notify(true)
			if r.do(r.s.Step(Due{})); r.flying == nil && r.load == nil {
				break
			}
			r.answer(true)
		}
		for key, past := range r.past {
			if last := past[len(past)-1]; r.stored[key] != last {
				t.Fatalf("seed %d: %v is not stored as it was told last", seed, key)
			}
		}
		if len(r.others) > 0 {
			t.Fatalf("seed %d: what others changed is left: %v", seed, r.others)
		}
		mended += r.mended
		if q := r.s.writes.queue; len(q.of) != 0 || q.config != 0 || r.flying != nil {
			t.Fatalf("seed %d: %d records wait, %d of them configuration", seed, len(q.of), q.config)
		}
		for outcome, n := range r.done {
			done[outcome] += n
		}
	}
	if mended < 50 {
		t.Errorf("%d changes of others were mended", mended)
	}
	if done[Done] < 200 || done[Unknown] < 5 || done[Deposed] < 5 {
		t.Errorf("too little happened: %v", done)
	}
}
