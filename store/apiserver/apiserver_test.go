package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// kubeconfig returns the kubeconfig of an API server that the test simulates.
func kubeconfig(t *testing.T, api *httptest.Server) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "x", "user": {"token": "our-token"}}]}`, api.URL, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Our credential is sent to the API server only: a redirection is an error, and its target receives no request.
// Promise: security-workloads.md#identity-and-private-keys, security-workloads.md#tokens
func TestRedirectionsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("somebody else was asked for %s with Authorization %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	var asked int
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.Header.Get("Authorization") != "Bearer our-token" {
			t.Errorf("Authorization %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, elsewhere.URL+"/stolen", http.StatusTemporaryRedirect)
	}))
	defer api.Close()
	c, err := New(kubeconfig(t, api))
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		err := c.Do(t.Context(), method, "/openid/v1/jwks", map[string]string{"a": "b"}, nil)
		if err == nil || !strings.Contains(err.Error(), "not followed") {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, err := c.Get(t.Context(), "/openid/v1/jwks", 100); err == nil {
		t.Error("Get follows")
	}
	if asked != 3 {
		t.Errorf("the API server was asked %d times", asked)
	}
}

// An answer is read up to its bound.
// Promise: security-workloads.md#tokens
func TestAnswersAreBounded(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"kind": "Status", "reason": "Forbidden", "message": %q}`, strings.Repeat("x", 1000))
			return
		}
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for range 100 {
			if _, err := w.Write(chunk); err != nil {
				return // the client has disconnected
			}
		}
		t.Error("100 MiB were read")
	}))
	defer api.Close()
	c, err := New(kubeconfig(t, api))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "/x", 1<<20); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Error(err)
	}
	if err := c.Do(t.Context(), http.MethodGet, "/x", nil, &struct{}{}); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Error(err)
	}
	err = c.Do(t.Context(), http.MethodGet, "/no", nil, nil)
	var status *Status
	if !errors.As(err, &status) || status.Reason != "Forbidden" || len(status.Message) > 300 || !IsStatus(err, http.StatusForbidden) || IsStatus(err, http.StatusNotFound) {
		t.Errorf("%v", err)
	}
}

// A list is read page by page, to its end; a page that is refused, and an object that is, end it.
func TestEach(t *testing.T) {
	var asked []string
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch r.URL.Query().Get("continue") {
		case "":
			fmt.Fprint(w, `{"metadata": {"continue": "a&b"}, "items": [{"n": 1}, {"n": 2}]}`)
		case "a&b":
			fmt.Fprint(w, `{"metadata": {}, "items": [{"n": 3}]}`)
		}
	}))
	defer api.Close()
	c, err := New(kubeconfig(t, api))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	take := func(raw json.RawMessage) error { got = append(got, string(raw)); return nil }
	if err := c.Each(t.Context(), "/api/v1/things?labelSelector=a", take); err != nil || strings.Join(got, "") != `{"n": 1}{"n": 2}{"n": 3}` {
		t.Errorf("%v %v", got, err)
	}
	if want := "labelSelector=a&limit=200&continue= labelSelector=a&limit=200&continue=a%26b"; strings.Join(asked, " ") != want {
		t.Errorf("asked %q", asked)
	}
	wrong := errors.New("no")
	if err := c.Each(t.Context(), "/api/v1/things", func(json.RawMessage) error { return wrong }); !errors.Is(err, wrong) || len(asked) != 3 {
		t.Errorf("%v, %d questions", err, len(asked))
	}
}

// Pages of large objects become smaller, until one object alone is too large.
func TestEachOfLargeObjects(t *testing.T) {
	var asked []string
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := r.URL.Query().Get("limit")
		asked = append(asked, limit)
		n, _ := strconv.Atoi(limit)
		fmt.Fprintf(w, `{"metadata": {}, "items": ["%s"]}`, strings.Repeat("x", n*MaxAnswer/60))
	}))
	defer api.Close()
	c, err := New(kubeconfig(t, api))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	if err := c.Each(t.Context(), "/x", func(json.RawMessage) error { read++; return nil }); err != nil || strings.Join(asked, " ") != "200 100 50" || read != 1 {
		t.Errorf("%v, %d objects, pages of %q", err, read, asked)
	}
}

// An empty kubeconfig is an error, and never stands for the service account of the Pod.
func TestEmptyKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Config(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
