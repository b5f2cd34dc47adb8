package seal

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A provider is the one that its name states, and values sealed with it can be opened by another one with the same
// configuration.
func TestNewProvider(t *testing.T) {
	dir := t.TempDir()
	phrase := filepath.Join(dir, "phrase")
	if err := os.WriteFile(phrase, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{"file:" + filepath.Join(dir, "kek"), "passphrase-file:" + phrase} {
		about := Context{Mesh: "m", TrustDomain: "td", Epoch: 1, KeyID: "k", Purpose: "test"}
		var blob []byte
		for round := range 2 {
			provider, err := NewProvider(spec, func(context.Context) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			sealer, err := New(provider)
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 {
				blob, err = sealer.Seal(t.Context(), Secret("plain"), about)
			} else {
				var plain Secret
				if plain, err = sealer.Open(t.Context(), blob, about); string(plain) != "plain" {
					t.Errorf("%s: another secret came out", spec)
				}
			}
			if err != nil {
				t.Errorf("%s: %v", spec, err)
			}
		}
	}
	if _, err := NewProvider("kms:/nowhere.sock", nil); err != nil {
		t.Errorf("a plugin that is away is no error yet: %v", err)
	}
	for _, spec := range []string{"", "file", "file:", "vault:x", "passphrase-file:" + filepath.Join(dir, "none")} {
		if _, err := NewProvider(spec, func(context.Context) error { return nil }); err == nil {
			t.Errorf("%q was accepted", spec)
		} else if spec == "vault:x" && !strings.Contains(err.Error(), "want file:PATH") {
			t.Errorf("%q: %v", spec, err)
		}
	}
}
