package seal_test

import (
	"errors"
	"path/filepath"
	"testing"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/seal/kmstest"
)

// For each provider: a value sealed before a rotation is stale and can be opened. After it was encrypted again, it is
// not stale, and can be opened without the old key. Current values are not reported as stale.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	plugin := kmstest.Start(t)
	file := func(paths ...string) func() (seal.Provider, error) {
		for i := range paths {
			paths[i] = filepath.Join(dir, paths[i])
		}
		return func() (seal.Provider, error) { return seal.NewFile(paths[0], paths[1:]...) }
	}
	phrase := func(first string, more ...seal.Secret) func() (seal.Provider, error) {
		return func() (seal.Provider, error) { return seal.NewPassphrase(seal.Secret(first), more...) }
	}
	kms := func() (seal.Provider, error) { return seal.NewKMS(seal.KMSConfig{Socket: plugin.Socket()}) }
	for name, r := range map[string]rotation{
		"file": {file("a"), file("b", "a"), file("b"), func() { opener(t, file("b")) }, func() {}, false},
		"passphrase": {phrase("first passphrase"), phrase("second passphrase", seal.Secret("first passphrase")), phrase("second passphrase"),
			func() {}, func() {}, false},
		"kms": {kms, kms, kms, plugin.RotateKey, plugin.DropOldKeys, true},
	} {
		t.Run(name, r.test)
	}
}

// rotation describes the change of a provider's key.
type rotation struct {
	before, between, after func() (seal.Provider, error)
	rotate, drop           func()
	inPlace                bool // the provider of before has both
}

func (r rotation) test(t *testing.T) {
	old := opener(t, r.before)
	blob, err := old.Seal(t.Context(), seal.Secret(plain), about)
	if err != nil {
		t.Fatal(err)
	}
	wantStale(t, old, blob, false)
	wantStale(t, opener(t, r.before), blob, false) // another process with the same key
	r.rotate()
	s := opener(t, r.between)
	if r.inPlace {
		s = old // the same process: its data key is of before
	}
	wantStale(t, s, blob, true)
	got, err := s.Open(t.Context(), blob, about)
	if err != nil || string(got) != plain {
		t.Fatalf("%q, %v", got, err)
	}
	fresh, err := s.Seal(t.Context(), got, about)
	if err != nil {
		t.Fatal(err)
	}
	wantStale(t, s, fresh, false)
	before, err1 := seal.KEK(blob)
	now, err2 := seal.KEK(fresh)
	if err1 != nil || err2 != nil || before == now {
		t.Errorf("KEK %q and %q, %v, %v", before, now, err1, err2)
	}
	r.drop()
	last := opener(t, r.after)
	if got, err := last.Open(t.Context(), fresh, about); err != nil || string(got) != plain {
		t.Errorf("without the old key: %v", err)
	}
	if _, err := last.Open(t.Context(), blob, about); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("what only the old key opens: %v", err)
	}
	wantStale(t, last, []byte("garbage"), false)
}

// opener is an envelope of a provider that is newly made.
func opener(t *testing.T, provider func() (seal.Provider, error)) *seal.Envelope {
	t.Helper()
	p, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	s, err := seal.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantStale(t *testing.T, s *seal.Envelope, blob []byte, want bool) {
	t.Helper()
	stale, err := s.Stale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := stale(blob); got != want {
		t.Errorf("stale is %v, want %v", got, want)
	}
}

// A plugin that is away cannot report its key.
func TestStaleNeedsTheProvider(t *testing.T) {
	plugin := kmstest.Start(t)
	p, err := seal.NewKMS(seal.KMSConfig{Socket: plugin.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, _ := seal.New(p)
	plugin.Stop()
	if _, err := s.Stale(t.Context()); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
