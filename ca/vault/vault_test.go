package vault_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/seal/kmstest"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/ca/vault/vaulttest"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

var _ ingest.Sealer = (*vault.Vault)(nil)

// material is a certificate and its private key, and the forms in which the key might be found somewhere.
type material struct {
	cert, key []byte
	forms     map[string]string
}

func newMaterial(t testing.TB) material {
	t.Helper()
	cert, key, private := vaulttest.Pair(t)
	block, _ := pem.Decode(key)
	raw := block.Bytes
	scalar, err := private.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	m := material{cert: cert, key: key, forms: map[string]string{"any PEM": "PRIVATE KEY-----"}}
	m.forms["PEM"] = strings.Split(string(m.key), "\n")[1]
	m.forms["PEM in base64"] = base64.StdEncoding.EncodeToString(m.key)[:48]
	for kind, b := range map[string][]byte{"DER ": raw, "scalar ": scalar} {
		m.forms[kind+"raw"], m.forms[kind+"hex"] = string(b), hex.EncodeToString(b)
		m.forms[kind+"base64"], m.forms[kind+"base64url"] = base64.StdEncoding.EncodeToString(b)[:40], base64.RawURLEncoding.EncodeToString(b)[:40]
		m.forms[kind+"bytes"] = strings.Trim(fmt.Sprint(b), "[]")
	}
	m.forms["scalar decimal"] = new(big.Int).SetBytes(scalar).String()
	return m
}

func (m material) spec(sealed, mac []byte) *model.SecretSpec {
	return &model.SecretSpec{Chain: m.cert, Key: sealed, Mac: mac}
}

func sealer(t testing.TB, path string) seal.Sealer {
	t.Helper()
	p, err := seal.NewFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := seal.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t testing.TB, c vault.Config) *vault.Vault {
	t.Helper()
	v, err := vault.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var at = model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "web"}

// The same key is not sealed twice, also by another leader; a replica opens it, and where it was moved, swapped, put
// back or belongs to another mesh, it does not open.
func TestVault(t *testing.T) {
	server, kek := kvtest.Start(t), filepath.Join(t.TempDir(), "kek")
	m, other := newMaterial(t), newMaterial(t)
	ctx := t.Context()
	first := open(t, vault.Config{Sealer: sealer(t, kek), Mesh: "mesh", Store: server.Store})
	blob, mac, err := first.Seal(ctx, at, m.key, nil)
	if err != nil {
		t.Fatal(err)
	}
	second := open(t, vault.Config{Sealer: sealer(t, kek), Mesh: "mesh", Store: server.Store})
	again, same, err := second.Seal(ctx, at, m.key, m.spec(blob, mac))
	if err != nil || !bytes.Equal(again, blob) || !bytes.Equal(same, mac) {
		t.Errorf("the same key was encrypted again: %v", err)
	}
	otherBlob, otherMAC, err := second.Seal(ctx, at, other.key, m.spec(blob, mac))
	if err != nil || bytes.Equal(otherBlob, blob) || bytes.Equal(otherMAC, mac) {
		t.Errorf("another key was not sealed: %v", err)
	}
	elsewhere := model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "else"}
	if _, there, err := second.Seal(ctx, elsewhere, m.key, nil); err != nil || bytes.Equal(there, mac) {
		t.Errorf("equal keys can be seen to be equal (%v)", err)
	}

	replica := open(t, vault.Config{Sealer: sealer(t, kek), Mesh: "mesh"})
	if got, err := replica.Open(ctx, at, m.spec(blob, mac)); err != nil || !bytes.Equal(got, m.key) {
		t.Errorf("a replica: %v", err)
	}
	if _, _, err := replica.Seal(ctx, at, m.key, nil); err == nil {
		t.Error("a replica sealed")
	}
	foreign := open(t, vault.Config{Sealer: sealer(t, kek), Mesh: "other"})
	for what, c := range map[string]struct {
		v    *vault.Vault
		key  model.Key
		spec *model.SecretSpec
	}{
		"another name":      {replica, elsewhere, m.spec(blob, mac)},
		"another namespace": {replica, model.Key{Kind: model.KindSecret, Namespace: "shop/web", Name: ""}, m.spec(blob, mac)},
		"another mesh":      {foreign, at, m.spec(blob, mac)},
		"an older key":      {replica, at, &model.SecretSpec{Chain: other.cert, Key: blob, Mac: mac}},
		"cut":               {replica, at, m.spec(blob[:len(blob)-1], mac)},
		"nothing":           {replica, at, m.spec(nil, mac)},
	} {
		if got, err := c.v.Open(ctx, c.key, c.spec); !errors.Is(err, seal.ErrTampered) || got != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	credentials := model.PrivateKey(`{"auths": {"r.example": {"auth": "hunter2"}}}`)
	sealed, _, err := second.Seal(ctx, at, credentials, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := replica.Open(ctx, at, &model.SecretSpec{Registries: []string{"r.example"}, Key: sealed}); err != nil || !bytes.Equal(got, credentials) {
		t.Errorf("credentials: %v", err)
	}
	for what, spec := range map[string]*model.SecretSpec{
		"credentials of other registries": {Registries: []string{"r.example", "other"}, Key: sealed},
		"a private key as credentials":    {Registries: []string{"r.example"}, Key: blob},
		"credentials that are no key's":   m.spec(sealed, mac),
	} {
		if got, err := replica.Open(ctx, at, spec); !errors.Is(err, seal.ErrTampered) || got != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	later := bytes.Clone(blob)
	later[len("NVSL")]++ // the format
	if got, err := replica.Open(ctx, at, m.spec(later, mac)); !errors.Is(err, seal.ErrNewer) || errors.Is(err, seal.ErrTampered) || got != nil {
		t.Errorf("sealed by a newer build: %v", err)
	}
	away := open(t, vault.Config{Sealer: sealer(t, kek+"2"), Mesh: "mesh", Store: server.Store})
	if _, err := away.Open(ctx, at, m.spec(blob, mac)); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("under another KEK: %v", err)
	}
	if _, _, err := away.Seal(ctx, at, m.key, nil); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("under another KEK a second key of MACs is made: %v", err)
	}
}

// Leaders that race for the key of the MACs have one in the end.
func TestOneKeyOfMACs(t *testing.T) {
	server, kek := kvtest.Start(t), filepath.Join(t.TempDir(), "kek")
	m := newMaterial(t)
	var macs [8][]byte
	var all sync.WaitGroup
	for i := range macs {
		v := open(t, vault.Config{Sealer: sealer(t, kek), Mesh: "mesh", Store: server.Store})
		all.Go(func() {
			var err error
			if _, macs[i], err = v.Seal(t.Context(), at, m.key, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, mac := range macs {
		if !bytes.Equal(mac, macs[0]) {
			t.Fatal("there are several")
		}
	}
}

// leaders are ingesters that lead one after the other in one etcd, and seal under one key.
type leaders struct {
	*kvtest.Server
	t     *testing.T
	kek   string
	epoch kv.Epoch
}

func newLeaders(t *testing.T) *leaders {
	l := &leaders{Server: kvtest.Start(t), t: t, kek: filepath.Join(t.TempDir(), "kek")}
	path := l.LeaderPath() + "test"
	if _, err := l.Client().Put(t.Context(), path, "me"); err != nil {
		t.Fatal(err)
	}
	got, err := l.Client().Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l.epoch = kv.Epoch{Key: path, Revision: got.Kvs[0].CreateRevision}
	return l
}

// lead begins one; it runs until the test ends.
func (l *leaders) lead() *ingest.Loop {
	loop := ingest.New(ingest.Config{Store: l.Store, Retry: 10 * time.Millisecond,
		Sealer: open(l.t, vault.Config{Sealer: sealer(l.t, l.kek), Mesh: "mesh", Store: l.Store})})
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	l.t.Cleanup(func() { cancel(); <-done })
	loop.Gained(l.epoch)
	return loop
}

// stored waits until a Secret is stored, by a batch other than one.
func (l *leaders) stored(want material, but int64) (spec *model.SecretSpec, revision int64) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		state, err := l.Load(l.t.Context(), 0)
		if err == nil && len(state.Values) == 1 && state.Complete != but {
			r, err := state.Values[0].Record()
			if err != nil {
				l.t.Fatal(err)
			}
			if s := r.(*model.Secret); s.Key == at && bytes.Equal(s.Spec.Chain, want.cert) {
				return s.Spec, state.Complete
			}
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("stored: %v %v", state, err)
		}
	}
}

// text is all that etcd has, and all that it ever had.
func (l *leaders) text() string {
	var lines strings.Builder
	all, err := l.Client().Get(l.t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		l.t.Fatal(err)
	}
	for rev := range all.Header.Revision { // past revisions are still stored
		old, err := l.Client().Get(l.t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(rev+1))
		if err != nil {
			l.t.Fatal(err)
		}
		for _, kv := range old.Kvs {
			fmt.Fprintf(&lines, "%s\n%s\n", kv.Key, kv.Value)
		}
	}
	return lines.String()
}

// writes counts the writes to the only key of etcd with this suffix.
func (l *leaders) writes(suffix string) (n int64) {
	all, err := l.Client().Get(l.t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if bytes.HasSuffix(kv.Key, []byte(suffix)) {
			n += kv.Version
		}
	}
	return n
}

// event puts the material as a TLS Secret.
func (m material) event() object.Event {
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/tls","metadata":{"name":"web","namespace":"shop"},"data":{"tls.crt":%q,"tls.key":%q}}`,
		base64.StdEncoding.EncodeToString(m.cert), base64.StdEncoding.EncodeToString(m.key))
	id := object.ID{Kind: "Secret", Namespace: "shop", Name: "web"}
	return object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, Version: "v1", JSON: []byte(text)}}
}

// The ingester on a real etcd: the Secret is there, its private key is not, in no form; it opens; and neither a new
// leader nor the same one writes it again.
// Promise: security-keys.md#who-reads-or-writes-etcd
func TestNoPrivateKeyInEtcd(t *testing.T) {
	l, m, next := newLeaders(t), newMaterial(t), newMaterial(t)
	first := l.lead()
	first.Emit([]object.Event{m.event(), {Op: object.Synced}})
	spec, revision := l.stored(m, 0)
	if got, err := open(t, vault.Config{Sealer: sealer(t, l.kek), Mesh: "mesh"}).Open(t.Context(), at, spec); err != nil || !bytes.Equal(got, m.key) {
		t.Errorf("a replica reads %v", err)
	}
	first.Lost()
	second := l.lead()
	second.Emit([]object.Event{m.event(), {Op: object.Synced}})
	second.Emit([]object.Event{next.event()}) // comes after whatever the comparison writes
	l.stored(next, revision)
	if writes := l.writes("records/Secret///shop/web"); writes != 2 {
		t.Errorf("the Secret was written %d times, want once by the first leader and once by the second, for the edit alone", writes)
	}

	text := l.text() + fmt.Sprint(first.Problems(), second.Problems(), spec)
	if !strings.Contains(text, "sealing/mac") || !strings.Contains(text, "records/Secret///shop/web") {
		t.Fatal("the test looks at the wrong place")
	}
	for _, one := range []material{m, next} {
		for form, part := range one.forms {
			if strings.Contains(text, part) {
				t.Errorf("etcd holds a private key as %s", form)
			}
		}
	}
}

// After the KMS has rotated its key, stored values and the MAC key are encrypted again, a bounded number at once; then
// the old key may be removed. A value that cannot be opened delays no other. A provider that is away delays all, and no
// value is lost.
func TestReencrypt(t *testing.T) {
	server, kms, ctx := kvtest.Start(t), kmstest.Start(t), t.Context()
	vaultOf := func() *vault.Vault {
		provider, err := seal.NewProvider("kms:"+kms.Socket(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := seal.New(provider)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, vault.Config{Sealer: s, Mesh: "mesh", Store: server.Store})
	}
	m, v := newMaterial(t), vaultOf()
	var stored []*model.Secret
	for i := range 5 {
		key := model.Key{Kind: model.KindSecret, Namespace: "shop", Name: fmt.Sprint(i)}
		blob, mac, err := v.Seal(ctx, key, m.key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			blob = append(bytes.Clone(blob[:len(blob)-1]), blob[len(blob)-1]^1)
		}
		r, err := model.New(key, 1, m.spec(blob, mac))
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, r.(*model.Secret))
	}
	if got, err := v.Reencrypt(ctx, stored, 9); err != nil || len(got) != 0 {
		t.Fatalf("nothing was rotated: %d, %v", len(got), err)
	}
	kms.RotateKey()
	kms.Stop()
	if got, err := v.Reencrypt(ctx, stored, 9); !errors.Is(err, seal.ErrUnavailable) || len(got) != 0 {
		t.Errorf("with the provider away: %d, %v", len(got), err)
	}
	kms.Resume()
	v = vaultOf() // or gRPC's pause between attempts would be waited for
	if got, err := v.Reencrypt(ctx, stored, 2); len(got) != 2 || !errors.Is(err, seal.ErrTampered) {
		t.Errorf("%d of 2, %v", len(got), err)
	}
	fresh, err := v.Reencrypt(ctx, stored, 9)
	if len(fresh) != 4 || !errors.Is(err, seal.ErrTampered) || !strings.Contains(err.Error(), "shop/0") {
		t.Errorf("%d of 4, %v", len(fresh), err)
	}
	kms.DropOldKeys()
	next := vaultOf()
	for r, blob := range fresh {
		spec := m.spec(blob, r.Spec.Mac)
		if got, err := next.Open(ctx, r.Key, spec); err != nil || !bytes.Equal(got, m.key) {
			t.Errorf("%s: %v", r.Key, err)
		}
		if again, _, err := next.Seal(ctx, r.Key, m.key, spec); err != nil || !bytes.Equal(again, blob) {
			t.Errorf("%s: another leader seals it again: %v", r.Key, err)
		}
	}
}
