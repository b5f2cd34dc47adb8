package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/web"
)

// The names of this process, as its flags and its environment say them, are those by which it may be asked.
func TestDebugNames(t *testing.T) {
	c := &config{httpAddr: "10.9.8.7:8080", advertise: "replica.example:15012", debugHosts: []string{"debug.example"}}
	c.env.podIP, c.env.podNamespace, c.env.customHost = "10.1.2.3", "istio-system", "custom.example"
	h := web.Guard(c.debugNames(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	for host, want := range map[string]int{
		"localhost:8080": 200, "127.0.0.1": 200, "10.9.8.7:8080": 200, "10.1.2.3:8080": 200, "replica.example:8080": 200, "debug.example": 200,
		"istiod.istio-system.svc:8080": 200, "custom.example": 200, "evil.example": 403, "10.9.8.6:8080": 403,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/debug/", nil), httptest.NewRecorder()
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
}

// A process that could verify no credential, and wants one, does not start; nor does one whose file for verifying has no
// address to be used at.
func TestCredentialsCanBeVerified(t *testing.T) {
	files := config{roles: []string{"xds"}, secureGRPCAddr: ":15012", tlsCert: "c", tlsKey: "k", env: environment{xdsAuth: true}}
	for name, one := range map[string]struct {
		change func(*config)
		wants  []string // flags that are named; none: it starts
	}{
		"none":             {func(*config) {}, []string{"--secure-grpc-addr", "--tls-cert", "--tls-client-ca", "--token-issuer", "--kek", "XDS_AUTH=false"}},
		"certificates":     {func(c *config) { c.clientCA = "ca" }, nil},
		"tokens":           {func(c *config) { c.tokenIssuer = "i" }, nil},
		"own tokens":       {func(c *config) { c.dataDir = "d" }, nil},
		"keyring":          {func(c *config) { c.kek = "file:k" }, nil},
		"open":             {func(c *config) { c.env.xdsAuth = false }, nil},
		"no address":       {func(c *config) { c.secureGRPCAddr = "" }, nil},
		"no certificate":   {func(c *config) { c.tlsCert, c.tlsKey = "", "" }, nil},
		"no xDS":           {func(c *config) { c.roles = []string{"ingest"} }, nil},
		"no pair":          {func(c *config) { c.clientCA, c.tlsCert, c.kek = "ca", "", "file:k" }, []string{"--tls-client-ca", "--tls-cert", "--tls-key"}},
		"CA to no address": {func(c *config) { c.clientCA, c.secureGRPCAddr = "ca", "" }, []string{"--tls-client-ca", "--secure-grpc-addr"}},
	} {
		c, said := files, []string{}
		one.change(&c)
		c.checkCredentials(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if text := strings.Join(said, "; "); (text == "") != (one.wants == nil) {
			t.Errorf("%s: %s", name, text)
		} else {
			for _, flag := range one.wants {
				if !strings.Contains(text, flag) {
					t.Errorf("%s: %q does not name %s", name, text, flag)
				}
			}
		}
	}
}
