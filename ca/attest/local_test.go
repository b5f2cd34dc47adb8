package attest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Several processes that start at once on one directory have one key, and each accepts the other's tokens.
func TestLocalIssuerIsOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	issuers := make([]*Issuer, 8)
	var wait sync.WaitGroup
	for i := range issuers {
		wait.Go(func() {
			var err error
			if issuers[i], err = Local(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	verifier, err := issuers[0].Verifier()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := NewTokens(TokensConfig{TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"), Issuers: []TokenIssuer{verifier}})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range issuers {
		token, _, err := i.Mint("shop", "web", "istio-ca", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		caller, err := tokens.Verify(t.Context(), token)
		if err != nil || caller.ID.String() != "spiffe://cluster.local/ns/shop/sa/web" {
			t.Fatalf("%v, %v", caller.ID, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "token-issuer.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: the key is for its owner only", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".token-issuer-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A key that cannot be read is an error that shows nothing of it.
func TestLocalIssuerBadKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token-issuer.key"), []byte("SECRETSECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Local(dir); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v", err)
	}
}

// A key path that is not a regular file, or a file that is too large, is refused by name at once: it is neither waited
// for nor read.
func TestLocalIssuerIsNoFile(t *testing.T) {
	for reason, put := range map[string]func(path string) error{
		"no regular file": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"symbolic link":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"bytes, at most":  func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, keyFile)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		for _, open := range []func(string) (*Issuer, error){Local, OpenLocal} {
			if _, err := open(dir); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), reason) {
				t.Errorf("want %q, got %v", reason, err)
			}
		}
	}
}
