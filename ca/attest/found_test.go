package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// api is an API server that serves its issuer and keys.
type api struct {
	mu     sync.Mutex
	issuer string // empty: it does not answer
	keys   []byte
	asked  int
	hold   chan struct{} // where set, answers wait for it
}

func (a *api) ask(ctx context.Context) (string, []byte, error) {
	a.mu.Lock()
	a.asked++
	hold := a.hold
	a.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.issuer == "" {
		return "", nil, errors.New("connection refused")
	}
	return a.issuer, a.keys, nil
}

func (a *api) set(issuer string, keys []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.issuer, a.keys = issuer, keys
}

// found returns a verifier for clusters whose issuers are fetched from their API servers.
func found(t *testing.T, memory string, of map[string]*api) *Tokens {
	t.Helper()
	return verifier(t, nil, func(c *TokensConfig) {
		c.Issuers, c.Now = nil, time.Now
		for cluster, a := range of {
			cfg := KeysConfig{Ask: a.ask, Whose: "cluster " + cluster}
			if memory != "" {
				cfg.Memory = filepath.Join(memory, cluster)
			}
			c.Issuers = append(c.Issuers, TokenIssuer{"", cluster, must(NewKeys(cfg))})
		}
	})
}

// current is a token that is valid now.
func current(key crypto.Signer, id string) string {
	now := time.Now()
	return sign(key, id, bound(map[string]any{"exp": now.Add(time.Hour).Unix(), "nbf": now.Unix(), "iat": now.Unix()}))
}

// Until the API server has returned its issuer, verification fails as unavailable; afterwards tokens are verified. A
// token of another issuer is refused then.
func TestIssuerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		v := found(t, "", map[string]*api{"east": a})
		token := current(ecKey(), "k")
		for range 5 {
			if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied) {
				t.Fatalf("while nobody answers: %v", err)
			}
		}
		if a.asked != 1 {
			t.Errorf("asked %d times within ten seconds", a.asked)
		}
		a.set(kube, jwks(jwk("k", ecKey())))
		time.Sleep(time.Minute)
		if got, err := v.Verify(t.Context(), token); err != nil || got.Cluster != "east" || got.PodUID != "u2" {
			t.Fatalf("%+v, %v", got, err)
		}
		other := sign(ecKey(), "k", bound(map[string]any{"iss": "https://other", "exp": time.Now().Add(time.Hour).Unix()}))
		if _, err := v.Verify(t.Context(), other); !errors.Is(err, ErrIssuer) {
			t.Errorf("another issuer's: %v", err)
		}
	})
}

// Few tokens wait for an API server that hangs: two do, and the others fail at once as unavailable.
// Promise: security-workloads.md#tokens
func TestFewWaitForAnIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{hold: make(chan struct{})}
		v := found(t, "", map[string]*api{"east": a})
		took := make(chan time.Duration, 100)
		for range cap(took) {
			go func() {
				begun := time.Now()
				if _, err := v.Verify(context.Background(), current(ecKey(), "k")); !errors.Is(err, ErrUnavailable) {
					t.Errorf("%v", err)
				}
				took <- time.Since(begun)
			}()
		}
		waited := 0
		for range cap(took) {
			if <-took > 0 {
				waited++
			}
		}
		if waited != 2 || a.asked != 1 {
			t.Errorf("%d waited, %d fetches", waited, a.asked)
		}
	})
}

// A process that starts while the API server is away has the keys of before; and none that are of another cluster's, be
// its issuer's name the same.
// Promise: security-workloads.md#tokens
func TestKeysAreRemembered(t *testing.T) {
	dir, other := t.TempDir(), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	east, west := &api{issuer: kube, keys: jwks(jwk("k", ecKey()))}, &api{issuer: kube, keys: jwks(jwk("k", other))}
	token := map[string]string{"east": current(ecKey(), "k"), "west": current(other, "k")}
	both := func(v *Tokens) {
		t.Helper()
		for cluster, token := range token {
			if got, err := v.Verify(t.Context(), token); err != nil || got.Cluster != cluster {
				t.Errorf("a token of %s: %+v, %v", cluster, got, err)
			}
		}
	}
	v := found(t, dir, map[string]*api{"east": east, "west": west})
	for _, i := range v.found {
		if err := i.Keys.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	both(v)
	east.set("", nil)
	west.set("", nil)
	both(found(t, dir, map[string]*api{"east": east, "west": west}))
}

// A path for saved token keys that is not a valid file is refused: it is not trusted, read without a bound, waited for
// or followed elsewhere. The log names it with the reason, and the process starts.
func TestSavedKeysAreRefused(t *testing.T) {
	dir := t.TempDir()
	a := &api{issuer: kube, keys: jwks(jwk("k", ecKey()))}
	good := filepath.Join(dir, "good")
	if err := must(NewKeys(KeysConfig{Ask: a.ask, Whose: "cluster east", Memory: good})).Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := must(os.ReadFile(good))
	for name, c := range map[string]struct {
		make   func(path string) error
		whose  string
		reason string
	}{
		"as they were":      {func(path string) error { return os.WriteFile(path, text, 0o600) }, "cluster east", ""},
		"another cluster's": {func(path string) error { return os.WriteFile(path, text, 0o600) }, "cluster west", "they are of"},
		"cut":               {func(path string) error { return os.WriteFile(path, text[:len(text)-1], 0o600) }, "cluster east", "unexpected end"},
		"without an issuer": {func(path string) error { return os.WriteFile(path, []byte(`{"whose": "cluster east"}`), 0o600) }, "cluster east", "name of the issuer"},
		"without keys": {func(path string) error {
			return os.WriteFile(path, []byte(`{"whose": "cluster east", "issuer": "i"}`), 0o600)
		}, "cluster east", "key set"},
		"larger than any":    {func(path string) error { return errors.Join(os.WriteFile(path, text, 0o600), os.Truncate(path, 1<<40)) }, "cluster east", "bytes, at most"},
		"a link to good":     {func(path string) error { return os.Symlink(good, path) }, "cluster east", "symbolic link"},
		"a pipe":             {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "cluster east", "no regular file"},
		"a folder":           {func(path string) error { return os.Mkdir(path, 0o700) }, "cluster east", "no regular file"},
		"nothing: no matter": {func(string) error { return nil }, "cluster east", ""},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := c.make(path); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		k := must(NewKeys(KeysConfig{Ask: a.ask, Whose: c.whose, Memory: path, Log: slog.New(slog.NewTextHandler(&log, nil))}))
		if k.Loaded() != (name == "as they were") {
			t.Errorf("%s: loaded is %v", name, k.Loaded())
		}
		if said := log.String(); c.reason == "" && said != "" || c.reason != "" && (!strings.Contains(said, path) || !strings.Contains(said, c.reason)) {
			t.Errorf("%s: want %q, the log says %q", name, c.reason, said)
		}
	}
}

// A new key of the API server is fetched when a token names it; a removed key does not verify, also after a restart.
func TestFoundKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, next := t.TempDir(), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		a := &api{issuer: kube, keys: jwks(jwk("k", ecKey()))}
		v := found(t, dir, map[string]*api{"east": a})
		old, young := current(ecKey(), "k"), current(next, "n")
		if _, err := v.Verify(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		a.set(kube, jwks(jwk("n", next)))
		time.Sleep(time.Minute)
		if _, err := v.Verify(t.Context(), young); err != nil {
			t.Error(err)
		}
		for _, v := range []*Tokens{v, found(t, dir, map[string]*api{"east": a})} {
			if _, err := v.Verify(t.Context(), old); !errors.Is(err, ErrUnknownKey) {
				t.Errorf("of the key that was given up: %v", err)
			}
		}
	})
}

// An answer of an API server without an issuer or without keys replaces nothing.
func TestBadAnswersAreNotTaken(t *testing.T) {
	a := &api{issuer: kube, keys: jwks(jwk("k", ecKey()))}
	v := found(t, "", map[string]*api{"east": a})
	if err := v.found[0].Keys.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		issuer string
		keys   []byte
	}{{" ", []byte("{}")}, {kube, []byte("<html>")}, {string(make([]byte, maxIssuer+1)), a.keys}} {
		a.set(bad.issuer, bad.keys)
		if v.found[0].Keys.Refresh(t.Context()) == nil {
			t.Errorf("issuer of %d bytes, keys %.20q are taken", len(bad.issuer), bad.keys)
		}
	}
	if _, err := v.Verify(t.Context(), current(ecKey(), "k")); err != nil {
		t.Error(err)
	}
}

// Previously known keys stay valid until the present source has answered; then they are dropped.
func TestKeysBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, changed := newEC(), newEC()
		first := must(NewKeys(KeysConfig{Whose: "west", Ask: (&api{issuer: kube, keys: jwks(jwk("k", old))}).ask}))
		if err := first.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		moved := &api{}
		next := must(NewKeys(KeysConfig{Whose: "west, elsewhere", Ask: moved.ask, Before: first}))
		v := verifier(t, nil, func(c *TokensConfig) { c.Issuers, c.Now = []TokenIssuer{{"", "west", next}}, time.Now })
		if _, err := v.Verify(t.Context(), current(old, "k")); err != nil {
			t.Errorf("before it has answered: %v", err)
		}
		moved.set(kube, jwks(jwk("k", changed)))
		if err := next.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), current(old, "k")); !errors.Is(err, ErrDenied) {
			t.Errorf("once it has answered: %v", err)
		}
		if _, err := v.Verify(t.Context(), current(changed, "k")); err != nil {
			t.Errorf("the keys of now: %v", err)
		}
	})
}
