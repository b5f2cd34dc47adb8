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

// sealingStore is a store of Secrets, and a leader that seals them.
type sealingStore struct {
	*testing.T
	*memory
	sealer    *sealer
	loop      *Loop
	epoch     kv.Epoch
	secrets   int
	cert, key []byte
}

func (w *sealingStore) at(i int) model.Key {
	return model.Key{Kind: model.KindSecret, Namespace: "shop", Name: fmt.Sprintf("tls-%02d", i)}
}

// event returns the event of one of the Secrets, with the given private key.
func (w *sealingStore) event(i int, key []byte) object.Event {
	return put(w.T, secretOf(w.at(i).Name, w.cert, key))
}

// sealedBy counts the stored values that are sealed under a key encryption key.
func (w *sealingStore) sealedBy(kek string) (n int) {
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	for i := range w.secrets {
		r, err := model.Decode(w.at(i), w.records[w.at(i)])
		if err != nil {
			w.Fatal(err)
		}
		if s := r.(*model.Secret).Spec; bytes.HasPrefix(s.Key, []byte("sealed "+kek)) && bytes.Equal(s.Chain, w.cert) && len(s.Mac) > 0 {
			n++
		}
	}
	return n
}

// batches waits until nothing goes on, and checks how many batches were written.
func (w *sealingStore) batches(want int) {
	w.Helper()
	synctest.Wait()
	if _, n := w.stored(); n != want {
		w.Fatalf("%d batches, want %d", n, want)
	}
}

func (w *sealingStore) looked() int {
	w.sealer.mu.Lock()
	defer w.sealer.mu.Unlock()
	return w.sealer.looks
}

// begin stores all Secrets under the old key, then breaks one object, and returns the number of batches.
func (w *sealingStore) begin() int {
	run(w.T, w.loop)
	events := []object.Event{put(w.T, svc)}
	for i := range w.secrets {
		events = append(events, w.event(i, w.key))
	}
	w.loop.Emit(append(events, synced))
	w.loop.Gained(w.epoch)
	synctest.Wait()
	if n := w.sealedBy("old "); n != w.secrets {
		w.Fatalf("%d Secrets are stored", n)
	}
	_, before := w.stored()
	w.loop.Emit([]object.Event{w.event(0, []byte("no key"))}) // the stored key stays
	w.batches(before)
	time.Sleep(2 * reencryptEvery)
	w.batches(before) // there is nothing to do
	return before
}

// After a rotation of the key encryption key every stored private key is encrypted again, in batches: also that of a
// Secret whose object is unreadable by now. Nothing else changes, and no value is written twice.
func TestSecretsAreReencrypted(t *testing.T) {
	cert, key := pair(t)
	synctest.Test(t, func(t *testing.T) {
		epoch := kv.Epoch{Key: "leader", Revision: 3}
		w := &sealingStore{T: t, memory: &memory{leader: epoch, records: map[model.Key][]byte{}}, sealer: &sealer{kek: "old "},
			epoch: epoch, secrets: reencryptMost + 8, cert: cert, key: key}
		w.loop = New(Config{Store: w.memory, Sealer: w.sealer})
		before := w.begin()
		w.sealer.mu.Lock()
		w.sealer.kek, w.sealer.err = "new ", errors.New("the provider is away")
		w.sealer.mu.Unlock()
		time.Sleep(reencryptEvery)
		w.batches(before)
		w.sealer.set(nil)
		for w.sealedBy("new ") == 0 {
			time.Sleep(reencryptPause / 4)
			synctest.Wait()
		}
		w.batches(before + 1)
		if n := w.sealedBy("new "); n != reencryptMost {
			t.Errorf("%d of %d at once", n, reencryptMost)
		}
		time.Sleep(reencryptPause)
		w.batches(before + 2)
		if n := w.sealedBy("new "); n != w.secrets {
			t.Errorf("%d of %d are encrypted again", n, w.secrets)
		}
		looks := w.looked()
		time.Sleep(10 * reencryptEvery)
		w.batches(before + 2)
		if n := w.looked() - looks; n > 11 {
			t.Errorf("looked %d times in ten minutes", n)
		}

		// Neither this leader nor another goes back, and the broken object's record goes with it.
		w.loop.Lost()
		w.loop.Gained(epoch)
		w.batches(before + 2)
		w.loop.Emit([]object.Event{gone(w.event(0, key)), gone(w.event(1, key))})
		w.batches(before + 3)
		w.memory.mu.Lock()
		defer w.memory.mu.Unlock()
		if w.records[w.at(0)] != nil || w.records[w.at(1)] != nil {
			t.Error("a record stands whose object is gone")
		}
		if len(w.loop.Problems()) != 0 {
			t.Errorf("problems %v", w.loop.Problems())
		}
	})
}

// storedSecrets is a leader that has written the Secrets a, b and c, sealed by one sealer.
func storedSecrets(t *testing.T, by *sealer, cert, key []byte) *State {
	t.Helper()
	s := NewState(Options{})
	s.Step(Gained{})
	s.Step(Objects{put(t, secretOf("a", cert, key)), put(t, secretOf("b", cert, key)), put(t, secretOf("c", cert, key)), synced})
	var write Write
	for _, e := range s.Step(Loaded{Have: map[model.Key]model.Hash{}, Complete: true}) {
		if seal, is := e.(Seal); is {
			write = s.Step(sealAll(t.Context(), by, seal))[0].(Write)
		}
	}
	if len(write.Batch.Puts) != 3 {
		t.Fatalf("%v", write)
	}
	s.Step(Written{After: 1})
	return s
}

// A value that was encrypted again too late is not written: an edit was first, the object was removed, or another term
// began.
func TestReencryptedTooLate(t *testing.T) {
	cert, key := pair(t)
	other, otherKey := pair(t)
	old, rotated := &sealer{kek: "old "}, &sealer{kek: "new "}
	l := New(Config{Sealer: rotated})
	s := storedSecrets(t, old, cert, key)
	look := s.Step(Look{})
	if len(look) != 1 || len(look[0].(Reencrypt).Stored) != 3 {
		t.Fatalf("%v", look)
	}
	reencrypted := l.reencrypt(t.Context(), look[0].(Reencrypt))
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
	if effects := s.Step(reencrypted); len(effects) != 0 { // a write is under way
		t.Fatalf("%v", effects)
	}
	next := s.Step(Written{After: 2})[0].(Write).Batch
	if len(next.Puts) != 2 || !bytes.Equal(next.Puts[0].(*model.Secret).Spec.Chain, other) || next.Puts[1].Meta().Key.Name != "c" ||
		!bytes.HasPrefix(next.Puts[1].(*model.Secret).Spec.Key, []byte("sealed new ")) {
		t.Fatalf("%v", next.Puts)
	}
	s.Step(Written{After: 3})
	for key, want := range s.inventory.wanted.records { // or the old ones would be written again some day
		if want.Meta().Hash != s.stored.hashes[key] {
			t.Errorf("%v is wanted otherwise than it is stored", key)
		}
	}
	again := s.Step(Look{})[0].(Reencrypt)
	if effects := s.Step(l.reencrypt(t.Context(), again)); len(again.Stored) != 2 || len(effects) != 0 {
		t.Fatalf("%v, then %v", again.Stored, effects)
	}
	s.Step(Objects{gone(put(t, secretOf("a", other, otherKey)))}) // a write is under way
	late := Reencrypted{Sealed: map[*model.Secret][]byte{again.Stored[1]: []byte("sealed")}}
	if effects := s.Step(late); len(effects) != 0 || len(s.sealing.reencryptions) != 1 {
		t.Errorf("%v while a write is under way", effects)
	}
	s.Step(Gained{Epoch: kv.Epoch{Revision: 2}})
	if effects := s.Step(reencrypted); len(effects) != 0 || len(s.sealing.reencryptions) != 0 {
		t.Errorf("%v after another term began", effects)
	}
}
