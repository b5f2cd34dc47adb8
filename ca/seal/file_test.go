package seal_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/ca/seal"
)

// After a lost key file was replaced by a new one, restoring the lost one makes its values usable again; a third file
// does not.
func TestKeyFileIsPutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.key")
	first, err := seal.NewFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plain := seal.Secret("0123456789abcdef0123456789abcdef")
	wrapped, err := first.Wrap(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	second, err := seal.NewFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Unwrap(t.Context(), wrapped); !errors.Is(err, seal.ErrUnavailable) {
		t.Fatalf("under another key: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if got, err := second.Unwrap(t.Context(), wrapped); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("put back: %v", err)
	}
	again, err := second.Wrap(t.Context(), plain)
	if err != nil || again.KeyID != wrapped.KeyID {
		t.Errorf("what is sealed now is under %q, %v; the file has %q", again.KeyID, err, wrapped.KeyID)
	}
}

// A missing key file is created by the first Seal if no value was ever sealed, otherwise never: errors name the file,
// and calls succeed once it is restored.
func TestKeyFileIsMissing(t *testing.T) {
	something := errors.New("there is something sealed")
	for name, c := range map[string]struct {
		first seal.First
		made  bool
		says  string
	}{
		"nothing is sealed":    {first: func(context.Context) error { return nil }, made: true},
		"something is":         {first: func(context.Context) error { return something }, says: something.Error()},
		"it is nobody's to do": {says: "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dir", "kek.key")
			blob := sealed(t, envelope(t, file(t, path)))
			if err := os.Rename(path, path+".away"); err != nil {
				t.Fatal(err)
			}
			provider, err := seal.NewProvider("file:"+path, c.first)
			if err != nil {
				t.Fatal(err)
			}
			s := envelope(t, provider)
			_, opened := s.Open(t.Context(), blob, about)
			_, stale := s.Stale(t.Context())
			for _, err := range []error{opened, stale} {
				if !errors.Is(err, seal.ErrUnavailable) || !strings.Contains(err.Error(), "the file "+path+" is missing") {
					t.Errorf("without the file: %v", err)
				}
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("a key was made before something was sealed: %v", err)
			}
			_, err = s.Seal(t.Context(), seal.Secret(plain), about)
			_, found := os.Stat(path)
			if made := err == nil && found == nil; made != c.made {
				t.Fatalf("sealing without the file: %v, the file: %v", err, found)
			}
			if !c.made && (!errors.Is(err, seal.ErrUnavailable) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("sealing without the file: %v", err)
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			opens(t, s, blob)
			if c.made {
				return
			}
			opens(t, envelope(t, file(t, path)), sealed(t, s))
		})
	}
}
