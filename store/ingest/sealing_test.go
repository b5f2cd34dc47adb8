package ingest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/ca/vault/vaulttest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// pair is a certificate and its private key, in PEM.
func pair(t testing.TB) (cert, key []byte) {
	t.Helper()
	cert, key, _ = vaulttest.Pair(t)
	return cert, key
}

func secretOf(name string, cert, key []byte) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: %s, namespace: shop}\ndata: {tls.crt: %s, tls.key: %s}",
		name, base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key))
}

// sealer returns different bytes for each call, as a real one does.
type sealer struct {
	mu    sync.Mutex
	err   error
	calls int
	seals int
	kek   string
	looks int
}

func (s *sealer) Seal(_ context.Context, key model.Key, private model.PrivateKey, stored *model.SecretSpec) (sealed, mac []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.err != nil {
		return nil, nil, s.err
	}
	sum := sha256.Sum256(append([]byte(key.Path()), private...))
	if bytes.Equal(stored.GetMac(), sum[:]) {
		return stored.GetKey(), sum[:], nil
	}
	s.seals++
	return []byte("sealed " + s.kek + rand.Text()), sum[:], nil
}

func (s *sealer) Reencrypt(_ context.Context, stored []*model.Secret, most int) (map[*model.Secret][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks++; s.err != nil {
		return nil, s.err
	}
	out := map[*model.Secret][]byte{}
	for _, r := range stored {
		if len(out) < most && !bytes.HasPrefix(r.Spec.Key, []byte("sealed "+s.kek)) {
			out[r] = []byte("sealed " + s.kek + rand.Text())
		}
	}
	return out, nil
}

func (s *sealer) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// secret is a stored one; nil: it is not there. No record may hold a part of the private keys.
func (m *memory) secret(t *testing.T, at model.Key, private ...[]byte) *model.SecretSpec {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[at] == nil {
		return nil
	}
	for k, raw := range m.records {
		for _, key := range private {
			if bytes.Contains(raw, key) || bytes.Contains(raw, bytes.Split(key, []byte("\n"))[1]) {
				t.Fatalf("%v is stored with its private key", k)
			}
		}
	}
	r, err := model.Decode(at, m.records[at])
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.Secret).Spec
}

// A Secret is not written while its key cannot be sealed, and is written once for each key. A new leader, and an edit
// with the same content, write nothing.
func TestSecretsAreSealed(t *testing.T) {
	cert, key := pair(t)
	other, otherKey := pair(t)
	synctest.Test(t, func(t *testing.T) {
		epoch := kv.Epoch{Key: "leader", Revision: 3}
		m := &memory{leader: epoch, records: map[model.Key][]byte{}}
		at := model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "web-tls"}
		stored := func() *model.SecretSpec { return m.secret(t, at, key, otherKey) }
		batches := func(want int) {
			t.Helper()
			synctest.Wait()
			if _, n := m.stored(); n != want {
				t.Fatalf("%d batches, want %d", n, want)
			}
		}
		s := &sealer{err: errors.New("the provider is away")}
		l := New(Config{Store: m, Sealer: s, Options: Options{Budget: weighed}})
		run(t, l)
		l.Emit([]object.Event{put(t, svc), put(t, secretOf("web-tls", cert, key)), synced})
		l.Gained(epoch)
		batches(1)
		if stored() != nil {
			t.Fatal("written without being sealed")
		}
		if p := l.Problems(); len(p) != 1 || p[0].String() !=
			"Secret shop/web-tls: the private key cannot be sealed: the provider is away; a version stored before stays in effect" {
			t.Fatalf("problems %v", p)
		}
		unsealed := func(want bool) {
			t.Helper()
			if got, err := l.Unsealed(t.Context(), put(t, secretOf("web-tls", cert, key)).ID); err != nil || got != want {
				t.Errorf("unsealed: %v, %v, want %v", got, err, want)
			}
		}
		unsealed(true)
		s.set(nil)
		time.Sleep(time.Second)
		batches(2)
		unsealed(false)
		if got := stored(); got == nil || !bytes.Equal(got.Chain, cert) || !strings.HasPrefix(string(got.Key), "sealed ") || len(l.Problems()) != 0 {
			t.Fatalf("stored %v, problems %v", got, l.Problems())
		}
		l.Emit([]object.Event{put(t, secretOf("web-tls", cert, append(key, "\n"...)))}) // the same key in another form
		l.Lost()
		l.Gained(epoch)
		batches(2)

		second := New(Config{Store: m, Sealer: s}) // a new leader
		run(t, second)
		second.Emit([]object.Event{put(t, svc), put(t, secretOf("web-tls", cert, key)), synced})
		second.Gained(epoch)
		batches(2)
		if s.seals != 1 {
			t.Errorf("sealed %d times, want once", s.seals)
		}
		edit := put(t, secretOf("web-tls", other, otherKey))
		oldStands(t, second, s, edit, batches, stored)
		if got := stored(); !bytes.Equal(got.Chain, other) {
			t.Errorf("stored %v", got)
		}
		second.Emit([]object.Event{gone(edit)})
		batches(4)
		if stored() != nil {
			t.Error("the Secret is gone, its record is not")
		}
	})
}

// oldStands edits a Secret, after two batches: while another key cannot be sealed the old one stays in effect; then the
// new one is written.
func oldStands(t *testing.T, l *Loop, s *sealer, edit object.Event, batches func(want int), stored func() *model.SecretSpec) {
	t.Helper()
	before := stored()
	s.set(errors.New("the provider is away"))
	l.Emit([]object.Event{edit})
	batches(2)
	if !bytes.Equal(stored().Key, before.Key) {
		t.Error("the last good one is gone")
	}
	s.set(nil)
	time.Sleep(time.Second)
	batches(3)
	if got := stored(); bytes.Equal(got.Key, before.Key) {
		t.Errorf("stored %v", got)
	}
}

// A Secret that was sealed too late, for an outdated version, is not written.
func TestSealedTooLate(t *testing.T) {
	cert, key := pair(t)
	other, otherKey := pair(t)
	s := NewState(Options{})
	sealed := func(effects []Effect) (Seal, bool) {
		for _, e := range effects {
			if seal, is := e.(Seal); is {
				return seal, true
			}
		}
		return Seal{}, false
	}
	s.Step(Gained{})
	s.Step(Objects{put(t, secretOf("a", cert, key)), put(t, secretOf("b", cert, key)), synced})
	first, ok := sealed(s.Step(Loaded{Complete: true}))
	if !ok || len(first.Secrets) != 2 || len(s.inventory.wanted.records) != 0 {
		t.Fatalf("%v, wanted %v", first, s.inventory.wanted.records)
	}
	if _, again := sealed(s.Step(Objects{put(t, secretOf("a", other, otherKey)), gone(put(t, secretOf("b", cert, key)))})); again {
		t.Error("sealed twice at once")
	}
	second, ok := sealed(s.Step(sealAll(t.Context(), &sealer{}, first)))
	if !ok || len(second.Secrets) != 1 || !bytes.Equal(second.Secrets[0].Private, otherKey) || len(s.inventory.wanted.records) != 0 {
		t.Fatalf("%v, wanted %v", second, s.inventory.wanted.records)
	}
	effects := s.Step(sealAll(t.Context(), &sealer{}, second))
	if len(effects) != 1 || len(effects[0].(Write).Batch.Puts) != 1 {
		t.Fatalf("%v", effects)
	}
	text := fmt.Sprintf("%v %+v %#v %v %+v", first, second, effects, second.Secrets[0], *second.Secrets[0])
	if strings.Contains(text, string(bytes.Split(otherKey, []byte("\n"))[1])) || strings.Contains(text, string(bytes.Split(key, []byte("\n"))[1])) {
		t.Error("an unsealed record prints its private key")
	}
	// Of another term nothing counts.
	s.Step(Gained{Epoch: kv.Epoch{Revision: 2}})
	third, _ := sealed(s.Step(Loaded{Epoch: kv.Epoch{Revision: 2}, Complete: true}))
	if effects := s.Step(sealAll(t.Context(), &sealer{}, second)); len(effects) != 0 || len(third.Secrets) != 1 {
		t.Errorf("%v after another term began", effects)
	}
}

// A provider that does not answer is called once for all waiting Secrets.
func TestSealerAwayIsAskedOnce(t *testing.T) {
	cert, key := pair(t)
	away := &sealer{err: errors.New("away")}
	var e Seal
	for i := range 5 {
		r, err := model.New(model.Key{Kind: model.KindSecret, Namespace: "shop", Name: fmt.Sprint(i)}, 0, &model.SecretSpec{Chain: cert})
		if err != nil {
			t.Fatal(err)
		}
		e.Secrets = append(e.Secrets, &UnsealedRecord{Record: r.(*model.Secret), Private: key})
	}
	if got := sealAll(t.Context(), away, e); got.Errors[4] == nil || away.calls != 1 {
		t.Errorf("%v after %d calls", got.Errors, away.calls)
	}
	if got := sealAll(t.Context(), nil, e); !errors.Is(got.Errors[0], errNoSealer) || got.Records[0] != nil {
		t.Errorf("%v without a sealer", got)
	}
}

// The problem of a Secret does not name the Secret of another tenant, because of which it waits.
func TestSealingErrorsNameNoOther(t *testing.T) {
	r := func(namespace string) *UnsealedRecord {
		made, err := model.New(model.Key{Kind: model.KindSecret, Namespace: namespace, Name: "web"}, 0, &model.SecretSpec{})
		if err != nil {
			t.Fatal(err)
		}
		return &UnsealedRecord{Record: made.(*model.Secret)}
	}
	failing := &sealer{err: errors.New("seal private key of one/web: away")}
	out := sealAll(t.Context(), failing, Seal{Secrets: []*UnsealedRecord{r("one"), r("two")}})
	if first, second := out.Errors[0], out.Errors[1]; first == nil || second == nil || strings.Contains(second.Error(), "one/web") {
		t.Errorf("%v; %v", first, second)
	}
}
