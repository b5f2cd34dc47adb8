package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

// Keys are requested from the API server only: neither from the URL in its response, nor from the target of a
// redirection.
// Promise: security-workloads.md#tokens
func TestKeysOfTheAPIServerAlone(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("somebody else is asked for %s", r.URL)
	}))
	defer elsewhere.Close()
	redirects := false
	keys := Keys(apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer": "https://cloud/cluster-1", "jwks_uri": %q}`, elsewhere.URL+"/keys")
		case redirects:
			http.Redirect(w, r, elsewhere.URL+"/keys", http.StatusFound)
		default:
			fmt.Fprint(w, `{"keys": []}`)
		}
	}))
	if issuer, text, err := keys(t.Context()); err != nil || issuer != "https://cloud/cluster-1" || string(text) != `{"keys": []}` {
		t.Errorf("%q, %s, %v", issuer, text, err)
	}
	redirects = true
	if _, _, err := keys(t.Context()); err == nil || !strings.Contains(err.Error(), "not followed") {
		t.Errorf("a redirection: %v", err)
	}
}

// An API server that answers with 100 MB is not read to the end, and one that hangs is left when the context ends.
// Promise: security-workloads.md#tokens
func TestKeysThatAreTooMuch(t *testing.T) {
	sent := 0
	keys := Keys(apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/openid-configuration" {
			fmt.Fprint(w, `{"issuer": "https://a"}`)
			return
		}
		chunk := make([]byte, 1<<20)
		for ; sent < 100; sent++ {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	if _, _, err := keys(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v after %d MiB", err, sent)
	}
	hung := Keys(apiservertest.Play(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := hung(ctx); err == nil {
		t.Error("a server that hangs has answered")
	}
}
