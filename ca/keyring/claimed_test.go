package keyring_test

import (
	"crypto/x509"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/seal/kmstest"
)

// sealedBy configures a replica whose keys a plugin wraps, with quick retries while the plugin is away.
func sealedBy(t *testing.T, kms *kmstest.Plugin) func(*keyring.Config) {
	return func(c *keyring.Config) {
		provider, err := seal.NewProvider("kms:"+kms.Socket(), nil)
		if err == nil {
			c.Sealer, err = seal.New(provider)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Retry = 10 * time.Millisecond
	}
}

func mustRevoke(t *testing.T, r *replica, name string) {
	t.Helper()
	if _, err := r.Revoke(t.Context(), nil, []string{name}); err != nil {
		t.Fatal(err)
	}
}

// wantClaimed starts a replica that stays sealed, and checks the roots by which it verifies callers.
func wantClaimed(t *testing.T, w *harness, want []*x509.Certificate, change ...func(*keyring.Config)) *keyring.State {
	t.Helper()
	r := w.replica(change...)
	defer r.stop()
	s := r.State()
	for errors.Is(s.Sealed, keyring.ErrNotLoaded) { // of before it looked
		<-r.Changed()
		s = r.State()
	}
	if s.Active != nil || !errors.Is(s.Sealed, seal.ErrUnavailable) || len(s.Bundle) != 0 {
		t.Errorf("%v", s)
	}
	if !slices.EqualFunc(s.Claimed, want, (*x509.Certificate).Equal) || !slices.EqualFunc(s.Callers(), want, (*x509.Certificate).Equal) {
		t.Errorf("claimed %d roots, want %d", len(s.Claimed), len(want))
	}
	return s
}

// A replica that is sealed from its start reads roots and revocations in etcd, and does not trust them: it uses only
// roots that it remembers or that were configured, if there are any.
func TestClaimedRoots(t *testing.T) {
	w, kms := newHarness(t), kmstest.Start(t)
	sealed := sealedBy(t, kms)
	dir := filepath.Join(t.TempDir(), "memory")
	first := w.replica(sealed, func(c *keyring.Config) { c.Dir = dir })
	first.settle()
	thief := spiffeid.RequireFromPath(td, "/ns/default/sa/thief")
	mustRevoke(t, first, thief.String())
	first.settle()
	root := first.State().Bundle[0]
	first.stop()
	kms.Stop()

	other, err := issue.SelfSigned(td, 9, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	given := func(roots []*x509.Certificate, err error) func(*keyring.Config) {
		return func(c *keyring.Config) { c.Roots = func() ([]*x509.Certificate, error) { return roots, err } }
	}
	look := func(want []*x509.Certificate, change ...func(*keyring.Config)) *keyring.State {
		t.Helper()
		return wantClaimed(t, w, want, append(change, sealed)...)
	}
	if s := look([]*x509.Certificate{root}); !s.RevokedIdentity(thief) {
		t.Error("what is revoked is not known")
	}
	look([]*x509.Certificate{root}, given([]*x509.Certificate{other.Certificate, root}, nil))
	look(nil, given([]*x509.Certificate{other.Certificate}, nil))
	look(nil, given(nil, errors.New("no such file")))

	// Another writer stores a keyring while no process can verify it: a replica that remembers the roots refuses it.
	kms.Resume()
	blobs := w.blobs("keys/")
	w.Delete(w.Prefix()+"keys/", w.Prefix()+"keys0")
	forger := w.replica() // under a key of its own
	forger.settle()
	for i := range 5 { // newer than the remembered one
		mustRevoke(t, forger, thief.String()+strconv.Itoa(i))
	}
	forged := forger.State().Bundle
	forger.stop()
	kms.Stop()
	look(nil, func(c *keyring.Config) { c.Dir = dir })
	look(forged)
	w.overwrite(blobs)
	kms.Resume()
	r := w.replica(sealed)
	r.settle()
	if s := r.State(); s.Active == nil || len(s.Claimed) != 0 || len(s.Bundle) != 1 {
		t.Errorf("unsealed: %v, %d claimed", s, len(s.Claimed))
	}
}
