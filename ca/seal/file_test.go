package seal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/ca/seal"
)

// A key file that was lost, so that another was made, heals what was sealed under it once it is put back; a third one does not.
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
