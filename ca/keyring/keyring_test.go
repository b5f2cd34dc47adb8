package keyring_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/seal/kmstest"
)

// Replicas that start together end up with one root, and all sign under it.
func TestFirstStartHasOneWinner(t *testing.T) {
	w := newHarness(t)
	w.sealer() // the key file is there before replicas race for the root
	var replicas []*replica
	for range 5 {
		replicas = append(replicas, w.replica())
	}
	first := replicas[0]
	for _, r := range replicas {
		r.settle()
		s := r.State()
		if s.Active == nil || len(s.Bundle) != 1 || s.Active.Epoch != 1 || len(s.CRLs) != 1 {
			t.Fatalf("%v", s)
		}
		if !s.Bundle[0].Equal(first.State().Bundle[0]) {
			t.Fatal("replicas have different roots")
		}
		if err := trusts(first.State().Bundle, r.mustLeaf("web"), w.now()); err != nil {
			t.Error(err)
		}
	}
	root := first.State().Bundle[0]
	if len(root.SubjectKeyId) == 0 || !bytes.Equal(root.AuthorityKeyId, root.SubjectKeyId) && len(root.AuthorityKeyId) > 0 {
		t.Errorf("SKI %x, AKI %x", root.SubjectKeyId, root.AuthorityKeyId)
	}
}

// A replica that cannot unseal reports the reason, keeps the bundle that it verified before, and signs once the KEK is
// back.
func TestSealedUntilTheKEKAnswers(t *testing.T) {
	w := newHarness(t)
	plugin := kmstest.Start(t)
	dir := t.TempDir()
	kms := func(c *keyring.Config) {
		provider, err := seal.NewKMS(seal.KMSConfig{Socket: plugin.Socket()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = provider.Close() })
		c.Sealer, _ = seal.New(provider)
		c.Dir = dir
	}
	r := w.replica(kms)
	r.settle()
	bundle := r.State().Bundle
	r.mustLeaf("web")
	plugin.Stop()
	r.mustLeaf("web") // unsealed keys stay unsealed
	if n := plugin.Encrypts.Load() + plugin.Decrypts.Load(); n > 2 {
		t.Errorf("%d calls of the plugin", n)
	}
	r.stop()

	r = w.replica(kms)
	if report := r.settle(); !strings.Contains(report.Sealed, plugin.Socket()) {
		t.Fatalf("sealed: %q", report.Sealed)
	}
	s := r.State()
	if s.Active != nil || !errors.Is(s.Sealed, seal.ErrUnavailable) || s.Alarm != nil || len(s.Bundle) != 1 || !s.Bundle[0].Equal(bundle[0]) {
		t.Fatalf("%v", s)
	}
	if _, err := r.leaf("web"); !errors.Is(err, seal.ErrUnavailable) {
		t.Fatalf("a sealed replica signed: %v", err)
	}
	if err := r.Append(t.Context(), keyring.Issue{Serial: "1", NotAfter: w.now().Add(time.Hour)}); !errors.Is(err, seal.ErrUnavailable) {
		t.Fatalf("a sealed replica journalled: %v", err)
	}
	if err := r.Rotate(t.Context(), false); !errors.Is(err, seal.ErrUnavailable) {
		t.Fatalf("a sealed replica rotated: %v", err)
	}
	plugin.Resume()
	for r.State().Active == nil {
		r.settle()
	}
	if err := trusts(bundle, r.mustLeaf("web"), w.now()); err != nil {
		t.Error(err)
	}
}

// A replica that knows a newer keyring refuses an older one, running or restarted; the keyring in force stays.
// Promise: security-keys.md#who-reads-or-writes-etcd
func TestRollbackIsRefused(t *testing.T) {
	w := newHarness(t)
	dir := t.TempDir()
	r := w.replica(func(c *keyring.Config) { c.Dir = dir })
	r.settle()
	old := w.blobs("keys/")
	if err := r.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	r.settle()
	newest := w.blobs("keys/")
	active := r.State().Active.Epoch
	for name, content := range map[string]func(){
		"older": func() { w.overwrite(old) },
		"gone":  func() { w.overwrite(nil) },
	} {
		content()
		r.settle()
		s := r.State()
		if !errors.Is(s.Alarm, keyring.ErrRolledBack) || !r.Stats().Alarm || s.Active == nil || s.Active.Epoch != active {
			t.Fatalf("%s: %v", name, s)
		}
		r.mustLeaf("web") // under the old key
		if err := r.Rotate(t.Context(), true); !errors.Is(err, keyring.ErrRolledBack) {
			t.Fatalf("%s: rotated on it: %v", name, err)
		}
		again := w.replica(func(c *keyring.Config) { c.Dir = dir })
		again.settle()
		if s := again.State(); s.Active != nil || !errors.Is(s.Sealed, keyring.ErrRolledBack) {
			t.Fatalf("%s, restarted: %v", name, s)
		}
		again.stop()
		w.overwrite(newest)
		r.settle()
		if s := r.State(); s.Alarm != nil || r.Stats().Alarm || s.Active.Epoch != active {
			t.Fatalf("%s, undone: %v", name, s)
		}
	}
}

// A writer of etcd without the KEK can neither add a root, nor exchange or damage a key or a list.
// Promise: security-keys.md#who-reads-or-writes-etcd
func TestTamperingRaisesAlarm(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	if err := r.Rotate(t.Context(), false); err != nil { // no leaf: it switches at once, and retires the old epoch
		t.Fatal(err)
	}
	r.mustLeaf("web")
	if err := r.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.settle()
	good := w.blobs("keys/")
	find := func(part string) []int {
		var at []int
		for i, b := range good {
			if strings.Contains(b.Path, part) {
				at = append(at, i)
			}
		}
		return at
	}
	keys, lists, state := find("sealed/"), find("crl/"), find("state")[0]
	if len(keys) != 2 || len(lists) != 2 {
		t.Fatalf("%d keys and %d lists, want two of each", len(keys), len(lists))
	}
	forged := bytes.Replace(good[state].Raw, []byte(`"version":`), []byte(`"version":9`), 1)
	newer := bytes.Replace(good[state].Raw, []byte(`"schema":`), []byte(`"schema":9`), 1)
	tampered := seal.ErrTampered
	swap := func(at []int, of int) []byte { return good[at[1-of]].Raw }
	for name, c := range map[string]struct {
		at  int
		raw []byte
		is  error
	}{
		"record of a newer build": {state, newer, seal.ErrNewer},
		"record in a newer form":  {state, bytes.Replace(newer, []byte(`"version":`), []byte(`"version":{},"was":`), 1), seal.ErrNewer},
		"key of a newer build":    {keys[1], laterFormat(good[keys[1]].Raw), seal.ErrNewer},
		"tag of a newer build":    {state, laterTag(t, good[state].Raw), seal.ErrNewer},
		"record forged":           {state, forged, tampered},
		"record garbage":          {state, []byte("{"), tampered},
		"keys swapped":            {keys[0], swap(keys, 0), tampered},
		"key cut":                 {keys[1], good[keys[1]].Raw[:40], tampered},
		"key gone":                {keys[0], nil, tampered},
		"lists swapped":           {lists[0], swap(lists, 0), tampered},
		"list gone":               {lists[1], nil, tampered},
		"record for a key":        {keys[0], good[state].Raw, tampered},
		"sealed tag swapped":      {state, bytes.Replace(good[state].Raw, []byte(`"tag":"`), []byte(`"tag":"AAAA`), 1), tampered},
	} {
		bad := slices.Clone(good)
		bad[c.at].Raw = c.raw
		if c.raw == nil {
			bad = slices.Delete(bad, c.at, c.at+1)
		}
		w.overwrite(bad)
		refusedRecord(t, w, r, name, c.is)
		w.overwrite(good)
		if r.settle(); r.State().Alarm != nil {
			t.Fatalf("%s, undone: %v", name, r.State())
		}
	}
}

// laterFormat is a sealed blob of a format that this build does not read.
func laterFormat(blob []byte) []byte {
	blob = bytes.Clone(blob)
	blob[len("NVSL")]++
	return blob
}

// laterTag is the state with such a tag.
func laterTag(t *testing.T, state []byte) []byte {
	t.Helper()
	var s struct {
		State json.RawMessage `json:"state"`
		Tag   []byte          `json:"tag"`
	}
	err := json.Unmarshal(state, &s)
	if err == nil {
		s.Tag = laterFormat(s.Tag)
		state, err = json.Marshal(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// refusedRecord checks that a replica in epoch 2 raises an alarm with this error and continues, and that a new one does
// not start.
func refusedRecord(t *testing.T, w *harness, r *replica, name string, is error) {
	t.Helper()
	r.settle()
	if s := r.State(); !errors.Is(s.Alarm, is) || errors.Is(is, seal.ErrNewer) && errors.Is(s.Alarm, seal.ErrTampered) || s.Active == nil || s.Active.Epoch != 2 {
		t.Errorf("%s: %v", name, s)
	}
	fresh := w.replica()
	defer fresh.stop()
	fresh.settle()
	if s := fresh.State(); s.Active != nil || !errors.Is(s.Sealed, is) || len(s.Bundle) != 0 {
		t.Errorf("%s, a new replica: %v", name, s)
	}
}
