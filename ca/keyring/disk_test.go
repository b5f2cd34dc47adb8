package keyring_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// becomes waits for a State.
func (r *replica) becomes(what string, is func(*keyring.State) bool) *keyring.State {
	r.t.Helper()
	late := time.After(time.Minute)
	for {
		changed := r.Changed()
		if s := r.State(); is(s) {
			return s
		}
		select {
		case <-changed:
		case <-late:
			r.t.Fatalf("%s: %v\n%s", what, r.State(), r.w.logs.String())
		}
	}
}

// A replica that starts while etcd is away has the keyring that was in force, with its revocations, and issues no
// certificates; when etcd is back, it has etcd's keyring. A file that is older than the replica's memory is refused,
// and so is one that cannot be unsealed.
func TestKeyringOnDisk(t *testing.T) {
	w := newHarness(t)
	dir := t.TempDir()
	here := func(c *keyring.Config) { c.Dir = dir }
	r := w.replica(here)
	r.settle()
	r.mustLeaf("web")
	file := filepath.Join(dir, "keyring.sealed")
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const bad = "spiffe://cluster.local/ns/default/sa/bad"
	if _, err := r.Revoke(t.Context(), []string{"abc"}, []string{bad}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	before := r.State()
	r.stop()
	newest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w.client = w.Connect()
	w.Server.Stop()

	r = w.replica(here, away)
	s := r.becomes("nothing is in force", func(s *keyring.State) bool { return s.Active != nil })
	denied, known := s.Denied(w.now())
	if s.Active.Epoch != before.Active.Epoch || len(s.Bundle) != 1 || !s.Bundle[0].Equal(before.Bundle[0]) || len(s.CRLs) != 1 || !s.RevokedSerial("abc") ||
		!known || len(denied) != 1 || denied[0].Identity != bad {
		t.Errorf("%v, denied %v", s, denied)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	if err := r.Append(ctx, keyring.Issue{Serial: "1", Identity: "spiffe://cluster.local/ns/default/sa/web", Epoch: 1, Generation: s.Generation, NotAfter: w.now()}); err == nil {
		t.Error("a certificate is journalled while etcd is away")
	}
	cancel()
	r.stop()

	if err := os.WriteFile(file, old, 0o600); err != nil {
		t.Fatal(err)
	}
	r = w.replica(here, away)
	if s := r.becomes("an older one", func(s *keyring.State) bool { return errors.Is(s.Sealed, keyring.ErrRolledBack) }); s.Active != nil {
		t.Errorf("an older keyring is in force: %v", s)
	}
	r.stop()
	if err := os.WriteFile(file, newest, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := newHarness(t)
	r = w.replica(here, away, func(c *keyring.Config) { c.Sealer = foreign.sealer() })
	if s := r.becomes("another key", func(s *keyring.State) bool { return s.Sealed != nil && !errors.Is(s.Sealed, keyring.ErrRolledBack) }); s.Active != nil {
		t.Errorf("in force with another key encryption key: %v", s)
	}
	r.stop()

	r = w.replica(here, away)
	r.becomes("nothing is in force again", func(s *keyring.State) bool { return s.Active != nil })
	w.Server.Restart(w.Server.Dir())
	r.settle()
	r.mustLeaf("web")
	if _, err := r.leaf("bad"); !errors.Is(err, keyring.ErrRevoked) {
		t.Errorf("a revoked identity: %v", err)
	}
}

// A file without the record is refused by name, also by a replica that remembers nothing.
func TestKeyringOnDiskWithoutARecord(t *testing.T) {
	w := newHarness(t)
	w.client = w.Connect()
	w.Server.Stop()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keyring.sealed"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.replica(away, func(c *keyring.Config) { c.Dir = dir })
	r.becomes("nothing is reported", func(s *keyring.State) bool {
		return errors.Is(s.Sealed, keyring.ErrNotLoaded) && strings.Contains(s.Sealed.Error(), "keyring.sealed: there is no keys/state")
	})
}

// A caller whose time is over gets no report that the keyring still writes.
func TestStatusEndsWithItsCaller(t *testing.T) {
	w := newHarness(t)
	r := w.replica(away)
	r.settle()
	w.Server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if report, err := r.Status(ctx); err == nil || report != nil {
		t.Errorf("%+v, %v", report, err)
	}
}

// Only a replica that leads makes the first keyring: another one may not have the user's CA.
func TestOnlyLeadersMakeAKeyring(t *testing.T) {
	w := newHarness(t)
	follower := w.replica(func(c *keyring.Config) { c.Leads = func() bool { return false } })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := follower.Status(ctx); err != nil { // it has looked
		t.Fatal(err)
	}
	if s := follower.State(); s.Active != nil || !errors.Is(s.Sealed, keyring.ErrNotLoaded) || len(w.blobs("keys/")) != 0 {
		t.Fatalf("%v, %d keys", s, len(w.blobs("keys/")))
	}
	w.replica().settle()
	follower.becomes("what another made", func(s *keyring.State) bool { return s.Active != nil })
}
