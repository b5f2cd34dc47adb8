package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// After the key encryption key was rotated every stored private key is sealed anew, a batch at a time: also that of a
// Secret whose object cannot be understood any more. Nothing else changes, nothing is written twice, by nobody.
func TestSecretsAreSealedAnew(t *testing.T) {
	cert, key := pair(t)
	const secrets = anewMost + 8
	synctest.Test(t, func(t *testing.T) {
		epoch := kv.Epoch{Key: "leader", Revision: 3}
		m := &memory{leader: epoch, records: map[model.Key][]byte{}}
		at := func(i int) model.Key {
			return model.Key{Kind: model.KindSecret, Namespace: "shop", Name: fmt.Sprintf("tls-%02d", i)}
		}
		sealedBy := func(kek string) (n int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for i := range secrets {
				r, err := model.Decode(at(i), m.records[at(i)])
				if err != nil {
					t.Fatal(err)
				}
				if s := r.(*model.Secret).Spec; bytes.HasPrefix(s.Key, []byte("sealed "+kek)) && bytes.Equal(s.Chain, cert) && len(s.Mac) > 0 {
					n++
				}
			}
			return n
		}
		batches := func(want int) {
			t.Helper()
			synctest.Wait()
			if _, n := m.stored(); n != want {
				t.Fatalf("%d batches, want %d", n, want)
			}
		}
		s := &sealer{kek: "old "}
		l := New(Config{Store: m, Sealer: s})
		run(t, l)
		events := []object.Event{put(t, svc)}
		for i := range secrets {
			events = append(events, put(t, secretOf(at(i).Name, cert, key)))
		}
		l.Emit(append(events, synced))
		l.Gained(epoch)
		synctest.Wait()
		if n := sealedBy("old "); n != secrets {
			t.Fatalf("%d Secrets are stored", n)
		}
		_, before := m.stored()
		l.Emit([]object.Event{put(t, secretOf(at(0).Name, cert, []byte("no key")))}) // what was stored stands
		batches(before)
		time.Sleep(2 * anewEvery)
		batches(before) // there is nothing to do

		s.mu.Lock()
		s.kek, s.err = "new ", errors.New("the provider is away")
		s.mu.Unlock()
		time.Sleep(anewEvery)
		batches(before)
		s.set(nil)
		for sealedBy("new ") == 0 {
			time.Sleep(anewPause / 4)
			synctest.Wait()
		}
		batches(before + 1)
		if n := sealedBy("new "); n != anewMost {
			t.Errorf("%d of %d at once", n, anewMost)
		}
		time.Sleep(anewPause)
		batches(before + 2)
		if n := sealedBy("new "); n != secrets {
			t.Errorf("%d of %d are sealed anew", n, secrets)
		}
		looked := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.looks
		}
		looks := looked()
		time.Sleep(10 * anewEvery)
		batches(before + 2)
		if n := looked() - looks; n > 11 {
			t.Errorf("looked %d times in ten minutes", n)
		}

		// Neither this leader nor another goes back, and the broken object's record goes with it.
		l.Lost()
		l.Gained(epoch)
		batches(before + 2)
		l.Emit([]object.Event{gone(put(t, secretOf(at(0).Name, cert, key))), gone(put(t, secretOf(at(1).Name, cert, key)))})
		batches(before + 3)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.records[at(0)] != nil || m.records[at(1)] != nil {
			t.Error("a record stands whose object is gone")
		}
		if len(l.Problems()) != 0 {
			t.Errorf("problems %v", l.Problems())
		}
	})
}

// What was sealed anew too late is not written: an edit was first, the object is gone, another term began.
func TestSealedAnewTooLate(t *testing.T) {
	cert, key := pair(t)
	other, otherKey := pair(t)
	old, rotated := &sealer{kek: "old "}, &sealer{kek: "new "}
	l := New(Config{Sealer: rotated})
	s := NewState(Options{})
	s.Step(Gained{})
	s.Step(Objects{put(t, secretOf("a", cert, key)), put(t, secretOf("b", cert, key)), put(t, secretOf("c", cert, key)), synced})
	var write Write
	for _, e := range s.Step(Loaded{Have: map[model.Key]model.Hash{}, Complete: true}) {
		if seal, is := e.(Seal); is {
			write = s.Step(sealAll(t.Context(), old, seal))[0].(Write)
		}
	}
	if len(write.Batch.Puts) != 3 {
		t.Fatalf("%v", write)
	}
	s.Step(Written{After: 1})
	look := s.Step(Look{})
	if len(look) != 1 || len(look[0].(Anew).Stored) != 3 {
		t.Fatalf("%v", look)
	}
	anewed := l.sealAnew(t.Context(), look[0].(Anew))
	// a is edited and sealed by now, b is gone, c stays.
	for _, e := range s.Step(Objects{put(t, secretOf("a", other, otherKey)), gone(put(t, secretOf("b", cert, key)))}) {
		switch e := e.(type) {
		case Seal:
			s.Step(sealAll(t.Context(), rotated, e))
		case Write:
			if len(e.Batch.Deletes) != 1 {
				t.Errorf("%v", e)
			}
		}
	}
	if effects := s.Step(anewed); len(effects) != 0 { // a write is under way
		t.Fatalf("%v", effects)
	}
	next := s.Step(Written{After: 2})[0].(Write).Batch
	if len(next.Puts) != 2 || !bytes.Equal(next.Puts[0].(*model.Secret).Spec.Chain, other) || next.Puts[1].Meta().Key.Name != "c" ||
		!bytes.HasPrefix(next.Puts[1].(*model.Secret).Spec.Key, []byte("sealed new ")) {
		t.Fatalf("%v", next.Puts)
	}
	s.Step(Written{After: 3})
	for key, want := range s.want { // or the old ones would be written again some day
		if want.Meta().Hash != s.have[key] {
			t.Errorf("%v is wanted otherwise than it is stored", key)
		}
	}
	again := s.Step(Look{})[0].(Anew)
	if effects := s.Step(l.sealAnew(t.Context(), again)); len(again.Stored) != 2 || len(effects) != 0 {
		t.Fatalf("%v, then %v", again.Stored, effects)
	}
	s.Step(Objects{gone(put(t, secretOf("a", other, otherKey)))}) // a write is under way
	late := Anewed{Sealed: map[*model.Secret][]byte{again.Stored[1]: []byte("sealed")}}
	if effects := s.Step(late); len(effects) != 0 || len(s.anew) != 1 {
		t.Errorf("%v while a write is under way", effects)
	}
	s.Step(Gained{kv.Epoch{Revision: 2}})
	if effects := s.Step(anewed); len(effects) != 0 || len(s.anew) != 0 {
		t.Errorf("%v after another term began", effects)
	}
}
