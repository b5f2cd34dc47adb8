package attest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// endpoint answers key requests in memory.
type endpoint struct {
	mu    sync.Mutex
	body  map[string]string // by path; none: 503
	asked int
	hold  chan struct{} // where set, answers wait for it
}

func (e *endpoint) set(path string, body []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.body = map[string]string{path: string(body)}
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if hold := e.hold; hold != nil {
		e.mu.Unlock()
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		e.mu.Lock()
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
	}
	body, ok := e.body[r.URL.Path]
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (e *endpoint) keys(t *testing.T, change ...func(*KeysConfig)) *Keys {
	t.Helper()
	cfg := KeysConfig{URL: "https://api/keys", Client: &http.Client{Transport: e}}
	for _, f := range change {
		f(&cfg)
	}
	k, err := NewKeys(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		e.set("/keys", jwks(jwk("old", ecKey())))
		keys := e.keys(t)
		v := verifier(t, keys)
		old := sign(ecKey(), "old", bound(nil))
		if _, err := v.Verify(t.Context(), old); err != nil {
			t.Fatalf("first token, nothing fetched before: %v", err)
		}
		fresh := newEC()
		e.set("/keys", jwks(jwk("old", ecKey()), jwk("new", fresh)))
		token := sign(fresh, "new", bound(nil))
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("refreshed twice within the interval: %v", err)
		}
		if n := e.count(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(10 * time.Second)
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("new key: %v", err)
		}
		// The old key is removed, perhaps because it was stolen: tokens verified with it end too.
		e.set("/keys", jwks(jwk("new", fresh)))
		if _, err := v.Verify(t.Context(), old); err != nil {
			t.Errorf("from the cache, before the refresh: %v", err)
		}
		if err := keys.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), old); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("token of a withdrawn key: %v", err)
		}
		// The same id with another key is another key.
		e.set("/keys", jwks(jwk("new", newEC())))
		must(0, keys.Refresh(t.Context()))
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrSignature) {
			t.Errorf("token of an exchanged key: %v", err)
		}
	})
}

func TestUnknownKeysAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{hold: make(chan struct{})}
		e.set("/keys", jwks(jwk("e", ecKey())))
		v := verifier(t, e.keys(t))
		good, bad := sign(ecKey(), "e", bound(nil)), sign(newEC(), "x", bound(nil))
		errs := make(chan error, 200)
		for i := range 200 {
			go func() {
				token := good
				if i%2 == 1 {
					token = bad
				}
				_, err := v.Verify(t.Context(), token)
				errs <- err
			}()
		}
		synctest.Wait() // all wait for one answer
		close(e.hold)
		refused := 0
		for range 200 {
			if err := <-errs; errors.Is(err, ErrUnknownKey) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if e.count() != 1 || refused != 100 {
			t.Errorf("asked %d times, refused %d of 100", e.count(), refused)
		}
	})
}

func TestEndpointDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		keys := e.keys(t)
		v := verifier(t, keys)
		token := sign(ecKey(), "e", bound(nil))
		_, err := v.Verify(t.Context(), token)
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "https://api/keys") {
			t.Errorf("no keys ever: %v", err)
		}
		e.set("/keys", jwks(jwk("e", ecKey())))
		if err := keys.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string]string{
			"empty": `{"keys":[]}`, "broken": `{`, "nothing": ``, "useless": `{"keys":[{"kty":"oct","kid":"e","k":"AAAA"}]}`,
			"huge": string(jwks(jwk("e", ecKey()))) + strings.Repeat(" ", maxKeySet),
		} {
			e.set("/keys", []byte(body))
			if err := keys.Refresh(t.Context()); err == nil || name == "empty" && !strings.Contains(err.Error(), "is empty") {
				t.Errorf("%s key set: %v", name, err)
			}
		}
		e.set("/elsewhere", nil)
		if err := keys.Refresh(t.Context()); err == nil {
			t.Error("no answer accepted")
		}
		v.known.Purge()
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("last good keys: %v", err)
		}
		// A key that we do not know may well be good: not the caller's fault while we cannot ask.
		if _, err := v.Verify(t.Context(), sign(newEC(), "x", bound(nil))); !errors.Is(err, ErrUnavailable) {
			t.Errorf("unknown key while down: %v", err)
		}
	})
}

func TestEndpointHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{hold: make(chan struct{})}
		v := verifier(t, e.keys(t))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := v.Verify(ctx, sign(ecKey(), "e", bound(nil))); !errors.Is(err, ErrUnavailable) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if _, err := v.Verify(t.Context(), sign(ecKey(), "e", bound(nil))); !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestRunRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		var log bytes.Buffer
		keys := e.keys(t, func(c *KeysConfig) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- keys.Run(ctx) }()
		time.Sleep(10 * time.Second)
		if n := e.count(); n < 3 || n > 4 {
			t.Errorf("asked %d times in 10 s of failure: doubling from 1 s", n)
		}
		if at := keys.Fetched(); !at.IsZero() {
			t.Errorf("fetched at %v, and every fetch failed", at)
		}
		e.set("/keys", jwks(jwk("e", ecKey())))
		time.Sleep(10 * time.Second)
		if !keys.Loaded() || time.Since(keys.Fetched()) > 10*time.Second {
			t.Errorf("loaded is %v, at %v", keys.Loaded(), keys.Fetched())
		}
		before := e.count()
		time.Sleep(time.Hour)
		if n := e.count() - before; n < 10 || n > 12 {
			t.Errorf("asked %d times in an hour", n)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if s := log.String(); strings.Count(s, "cannot be refreshed") != 1 || strings.Count(s, "refreshed again") != 1 {
			t.Errorf("log: %s", s)
		}
	})
}

func TestDiscovery(t *testing.T) {
	e := &endpoint{}
	answer := func(issuer, uri string) map[string]string {
		return map[string]string{
			"/.well-known/openid-configuration": string(must(json.Marshal(map[string]string{"issuer": issuer, "jwks_uri": uri}))),
			"/openid/v1/jwks":                   string(jwks(jwk("e", ecKey()))),
		}
	}
	keys := e.keys(t, func(c *KeysConfig) { c.URL, c.Discovery = "", kube })
	for name, tt := range map[string]struct {
		body map[string]string
		says string // "": accepted
	}{
		"good":         {answer(kube, "https://10.0.0.1/openid/v1/jwks"), ""},
		"other issuer": {answer("https://evil", "https://10.0.0.1/openid/v1/jwks"), `issuer "https://evil"`},
		"plain text":   {answer(kube, "http://10.0.0.1/openid/v1/jwks"), "must be https"},
		"no keys":      {answer(kube, ""), "is not a JWKS URL"},
		"not JSON":     {map[string]string{"/.well-known/openid-configuration": "<html>"}, "not JSON"},
		"away":         {nil, "Service Unavailable"},
	} {
		e.body = tt.body
		err := keys.Refresh(t.Context())
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysConfig(t *testing.T) {
	for name, cfg := range map[string]KeysConfig{
		"none":              {},
		"two":               {URL: "https://a", File: "/b"},
		"plain text":        {URL: "http://api/keys"},
		"is not a JWKS URL": {URL: "keys"},
		"credentials":       {URL: "https://u:password@api/keys"},
		"no escape":         {URL: "https://u:password:/@%zz/keys"},
	} {
		if _, err := NewKeys(cfg); err == nil || strings.Contains(err.Error(), "password") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, u := range []string{"http://127.0.0.1:1/keys", "http://localhost/keys", "https://api/keys"} {
		if _, err := NewKeys(KeysConfig{URL: u}); err != nil {
			t.Error(err)
		}
	}
}

func TestRedirections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{"/loop": "/loop", "/down": "http://192.0.2.1/keys", "/here": "/keys"}[r.URL.Path]
		if to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_, _ = w.Write(jwks(jwk("e", ecKey())))
	}))
	defer server.Close()
	for path, says := range map[string]string{"/here": "", "/loop": "more than 4 redirections", "/down": "must be https"} {
		err := must(NewKeys(KeysConfig{URL: server.URL + path})).Refresh(t.Context())
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	at := now
	keys := must(NewKeys(KeysConfig{File: path, Now: func() time.Time { return at }}))
	v := verifier(t, keys)
	der := must(x509.MarshalPKIXPublicKey(ecKey().Public()))
	id, _, _ := keyID(ecKey().Public()) // as kube-apiserver names it
	token := sign(ecKey(), id, bound(nil))
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnavailable) {
		t.Errorf("no file: %v", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)})...)
	must(0, os.WriteFile(path, text, 0o600))
	at = at.Add(10 * time.Second)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("PEM: %v", err)
	}
	must(0, os.WriteFile(path, jwks(jwk("j", rsaKey())), 0o600))
	at = at.Add(10 * time.Second)
	if _, err := v.Verify(t.Context(), sign(rsaKey(), "j", bound(nil))); err != nil {
		t.Errorf("JWKS: %v", err)
	}
}

func TestKeysLeftOut(t *testing.T) {
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	set, skipped, err := parseKeys(jwks(
		jwk("good", ecKey()), jwk("weak", weak),
		jose.JSONWebKey{Key: ecKey().Public(), KeyID: "enc", Use: "enc"},
		jose.JSONWebKey{Key: newEC(), KeyID: "private"},
		jose.JSONWebKey{Key: []byte("shared secret"), KeyID: "hmac"},
	))
	if err != nil || len(set.keys) != 1 || len(set.find("good")) != 1 || len(skipped) != 4 {
		t.Errorf("%v, %q, %v", set, skipped, err)
	}
	if len(set.find("")) != 1 {
		t.Error("the only key is not found without id")
	}
	for _, text := range []string{"", "x", `{"keys":[{"kty":"XX"}]}`, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := StaticKeys([]byte(text)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
	// A key that states its algorithm is used for no other.
	k := jwk("r", rsaKey())
	k.Algorithm = "PS256"
	if _, err := verifier(t, static(k)).Verify(t.Context(), sign(rsaKey(), "r", bound(nil))); !errors.Is(err, ErrSignature) {
		t.Error(err)
	}
}
