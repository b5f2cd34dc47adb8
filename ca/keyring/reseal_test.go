package keyring_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/seal/kmstest"
)

// until advances the clock until a replica's report fulfils a condition.
func (r *replica) until(what string, holds func(*keyring.Report) bool) *keyring.Report {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; r.w.later(time.Minute) {
		report := r.settle()
		switch {
		case holds(report):
			return report
		case time.Now().After(end):
			r.t.Fatalf("not %s: %+v", what, report)
		}
	}
}

// After a rotation of the plugin's key, values in etcd are encrypted again: nothing is lost, all replicas continue, and
// the old key is no longer needed.
func TestKEKRotationOfThePlugin(t *testing.T) {
	w := newHarness(t)
	plugin := kmstest.Start(t)
	kms := wrappedByPlugin(t, plugin)
	one, other := w.replica(kms), w.replica(kms)
	one.settle()
	other.settle()
	leaf := one.mustLeaf("web")
	if err := one.Rotate(t.Context(), false); err != nil { // two keys: the holder of web waits
		t.Fatal(err)
	}
	report := one.until("sealed once", func(r *keyring.Report) bool { return len(r.Epochs) == 2 })
	if !slices.Equal(report.KEKs, []string{"kms-v2:key-1"}) {
		t.Fatalf("KEKs %v", report.KEKs)
	}
	before, state := len(w.blobs("keys/sealed/")), one.State().Epochs
	calls := plugin.Encrypts.Load()
	w.later(3 * time.Minute)
	one.settle()
	one.settle()
	if n := plugin.Encrypts.Load() - calls; n != 0 {
		t.Errorf("%d encryptions without a rotation", n)
	}

	plugin.Stop()
	w.later(3 * time.Minute)
	one.settle()
	one.mustLeaf("web") // a plugin that is away delays nothing
	plugin.RotateKey()
	plugin.Resume()
	report = one.until("encrypted again", func(r *keyring.Report) bool { return slices.Equal(r.KEKs, []string{"kms-v2:key-2"}) })
	plugin.DropOldKeys()
	if len(w.blobs("keys/sealed/")) != before || len(report.Epochs) != len(state) {
		t.Fatalf("%d keys, %v", len(w.blobs("keys/sealed/")), report.Epochs)
	}
	third := w.replica(kms) // unwraps everything with the new key alone
	for _, r := range []*replica{one, other, third} {
		r.until("unsealed", func(n *keyring.Report) bool { return n.Sealed == "" }) // a connection to the plugin is tried again after a while
		if s := r.State(); s.Alarm != nil || s.Sealed != nil || s.Generation != 2 {
			t.Fatalf("%v", s)
		}
		if err := trusts(r.State().Bundle, r.mustLeaf("again"), w.now()); err != nil {
			t.Fatal(err)
		}
		if err := trusts(r.State().Bundle, leaf, leaf.Leaf.NotBefore); err != nil {
			t.Fatal(err)
		}
	}
	if err := third.Rotate(t.Context(), true); err != nil { // the prepared key opens too
		t.Fatal(err)
	}
	if got := third.mustLeaf("web").Epoch; got != 2 {
		t.Fatalf("signed by epoch %d", got)
	}
}

// A key of an epoch that the record does not have keeps no other key from being encrypted again.
func TestLeftoversAreNotEncryptedAgain(t *testing.T) {
	w := newHarness(t)
	plugin := kmstest.Start(t)
	r := w.replica(wrappedByPlugin(t, plugin))
	r.settle()
	own := w.blobs("keys/sealed/")[0]
	w.Put("keys/sealed/0000000000000000", string(own.Raw)) // comes first
	plugin.RotateKey()
	r.until("encrypted again", func(*keyring.Report) bool {
		blobs := w.blobs("keys/sealed/")
		kek, err := seal.KEK(blobs[1].Raw)
		return err == nil && blobs[1].Path == own.Path && kek == "kms-v2:key-2"
	})
}

// wrappedByPlugin configures a replica whose keys a plugin wraps.
func wrappedByPlugin(t *testing.T, plugin *kmstest.Plugin) func(*keyring.Config) {
	return func(c *keyring.Config) {
		provider, err := seal.NewKMS(seal.KMSConfig{Socket: plugin.Socket()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = provider.Close() })
		c.Sealer, _ = seal.New(provider)
	}
}

// With files, the operator rotates in three steps; at each, replicas of the step before and of this one work together.
func TestKEKRotationOfFiles(t *testing.T) {
	w := newHarness(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	with := func(file string, older ...string) func(*keyring.Config) {
		return func(c *keyring.Config) {
			provider, err := seal.NewFile(file, older...)
			if err != nil {
				t.Fatal(err)
			}
			c.Sealer, _ = seal.New(provider)
		}
	}
	first := w.replica(with(path("old")))
	oldKEK := first.settle().KEKs[0]
	if _, err := seal.NewFile(path("new")); err != nil {
		t.Fatal(err)
	}
	running := []*replica{first}
	check := func(step string) {
		t.Helper()
		for _, r := range running {
			r.settle()
			if s := r.State(); s.Active == nil || s.Alarm != nil {
				t.Fatalf("%s: %v", step, s)
			}
			r.mustLeaf("web")
		}
	}
	second := w.replica(with(path("old"), path("new")))
	running = append(running, second)
	check("the new one is known")
	first.stop()
	third := w.replica(with(path("new"), path("old")))
	running = []*replica{second, third}
	check("the new one is first")
	second.stop() // otherwise it would seal its writes under the old key
	third.until("encrypted again", func(r *keyring.Report) bool { return len(r.KEKs) == 1 && r.KEKs[0] != oldKEK })
	if err := os.Remove(path("old")); err != nil {
		t.Fatal(err)
	}
	fourth := w.replica(with(path("new")))
	running = []*replica{third, fourth}
	check("the old one is gone")
	if _, err := seal.NewFile(path("new"), path("old")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an older key that is not there: %v", err)
	}
}
