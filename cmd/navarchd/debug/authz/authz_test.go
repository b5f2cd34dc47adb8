package authz

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/internal/web"
)

// guardedPages guards pages that print the parts of shop, pay (a tenant with shop) and other that their caller sees.
func guardedPages(t *testing.T) (http.Handler, *Authorizer, func(namespace, audience string) string) {
	t.Helper()
	issuer, err := attest.Local(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := issuer.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := attest.NewTokens(attest.TokensConfig{TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"),
		Audiences: []string{"istio-ca"}, Issuers: []attest.TokenIssuer{verifier}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	d := &Authorizer{System: "istio-system", Hosts: web.NewHosts("navarchd.example"), Tokens: tokens, Tenant: func(namespace string) string {
		return strings.NewReplacer("shop", "t", "pay", "t").Replace(namespace)
	}}
	pages := func(who Caller) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if who.Sees == nil {
				fmt.Fprint(w, "all")
			}
			for _, namespace := range []string{"shop", "pay", "other", ""} {
				if who.Sees.Of(namespace) {
					fmt.Fprintf(w, " %s", namespace)
				}
			}
		})
	}
	mint := func(namespace, audience string) string {
		token, _, err := issuer.Mint(namespace, "default", audience, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	return d.Guard(pages), d, mint
}

// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestAuthorizer(t *testing.T) {
	h, d, mint := guardedPages(t)
	ask := func(from, path, token string, more ...string) string {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr, r.Host = from, "localhost:8080"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		for i := 0; i < len(more); i += 2 {
			if r.Header.Set(more[i], more[i+1]); more[i] == "Host" {
				r.Host = more[i+1]
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			return fmt.Sprint(w.Code)
		}
		return w.Body.String()
	}
	const here, away, syncz, everything = "127.0.0.1:9", "10.1.2.3:9", "/debug/syncz", "all shop pay other "
	shop, system, wrong := mint("shop", "istio-ca"), mint("istio-system", "istio-ca"), mint("istio-system", "vault")
	for _, one := range []struct{ what, got, want string }{
		{"loopback", ask(here, syncz, ""), everything},
		{"loopback, version 6", ask("[::1]:9", syncz, ""), everything},
		{"loopback with a token", ask(here, syncz, shop), everything},
		{"passed on by a proxy", ask(here, syncz, "", "X-Forwarded-For", "10.1.2.3"), "401"},
		{"passed on by another proxy", ask(here, syncz, "", "Forwarded", "for=10.1.2.3"), "401"},
		{"passed on by a sidecar", ask("127.0.0.6:9", syncz, ""), "401"},
		{"passed on, with an empty header", ask(here, syncz, "", "X-Forwarded-For", ""), "401"},
		{"passed on by Envoy, with a token", ask(here, syncz, shop, "X-Envoy-Decorator-Operation", "x"), " shop pay"},
		{"configured name", ask(here, syncz, "", "Host", "navarchd.example"), everything},
		{"name of another site", ask(here, syncz, "", "Host", "evil.example"), "403"},
		{"the same, with a token", ask(away, syncz, system, "Host", "evil.example"), "403"},
		{"page of another site", ask(here, syncz, "", "Sec-Fetch-Site", "cross-site"), "403"},
		{"script of another site", ask(here, "/debug/pprof/cmdline", "", "Origin", "http://evil.example"), "403"},
		{"no token", ask(away, syncz, ""), "401"},
		{"no address", ask("@", syncz, ""), "401"},
		{"no token of ours", ask(away, syncz, "x.y.z"), "401"},
		{"another audience", ask(away, syncz, wrong), "401"},
		{"system", ask(away, syncz, system), everything},
		{"tenant", ask(away, syncz, shop), " shop pay"},
		{"tenant, dump", ask(away, "/debug/config_dump?proxyID=x.shop", shop), " shop pay"},
		{"tenant, mesh-wide page", ask(away, "/debug/snapshot", shop), "403"},
		{"tenant, page of tomorrow", ask(away, "/debug/everything", shop), "403"},
		{"tenant, profile", ask(away, "/debug/pprof/cmdline", shop), "403"},
		{"no token, profile", ask(away, "/debug/pprof/cmdline", ""), "401"},
	} {
		if one.got != one.want {
			t.Errorf("%s: %q, want %q", one.what, one.got, one.want)
		}
	}
	if got := ask(away, "/debug/pprof/cmdline", system); !strings.Contains(got, "test") {
		t.Errorf("a profile for a system caller: %q", got)
	}
	d.Revoked = func(id spiffeid.ID) bool { return strings.Contains(id.String(), "/ns/shop/") }
	if got := ask(away, syncz, shop); got != "401" {
		t.Errorf("revoked: %q", got)
	}
	d.Tokens = nil
	if got := ask(away, syncz, system); got != "401" {
		t.Errorf("without a verifier: %q", got)
	}
	if d.Open = true; ask(away, syncz, "") != everything {
		t.Error("open, and closed")
	}
	if got := ask(away, syncz, "", "Host", "evil.example"); got != "403" {
		t.Errorf("open, and a name of another site: %q", got)
	}
}

// The parts of istio.io/debug that a stream's caller sees depend on its identity, and on the proof that the identity is
// of the config cluster: a certificate without a cluster (another CA's) is no proof.
// Promise: security-keys.md#the-power-of-each-key
func TestSeen(t *testing.T) {
	d := &Authorizer{System: "istio-system", Cluster: "east", Tenant: func(namespace string) string {
		return strings.NewReplacer("shop", "t", "pay", "t").Replace(namespace)
	}, Revoked: func(id spiffeid.ID) bool { return strings.HasSuffix(id.Path(), "/gone") }}
	const token, certificate = attest.ByToken, attest.ByCertificate
	for _, one := range []struct{ namespace, account, by, cluster, want string }{
		{"istio-system", "x", token, "", "shop pay other"}, // of our own issuer
		{"istio-system", "x", token, "east", "shop pay other"},
		{"istio-system", "x", token, "west", ""},
		{"istio-system", "x", certificate, "", ""},
		{"istio-system", "x", certificate, "east", "shop pay other"},
		{"istio-system", "x", certificate, "west", ""},
		{"pay", "x", token, "west", "shop pay"},
		{"pay", "x", certificate, "", "shop pay"},
		{"other", "x", token, "east", "other"},
		{"istio-system", "gone", token, "east", "PermissionDenied"},
		{"", "", "", "", "Unauthenticated"},
	} {
		who := attest.Caller{Namespace: one.namespace, By: one.by, Cluster: one.cluster}
		if one.namespace != "" {
			who.ID = spiffeid.RequireFromPath(spiffeid.RequireTrustDomainFromString("cluster.local"), "/ns/"+one.namespace+"/sa/"+one.account)
		}
		seen, err := d.Stream(who)
		var got []string
		for _, namespace := range []string{"shop", "pay", "other"} {
			if err == nil && seen.Sees.Of(namespace) {
				got = append(got, namespace)
			}
		}
		if err != nil {
			got = append(got, status.Code(err).String())
		}
		if strings.Join(got, " ") != one.want {
			t.Errorf("%+v: sees %v", one, got)
		}
		if all := seen.Sees == nil; all != (seen.Tenant == "") || !all && seen.Tenant != d.Tenant(one.namespace) {
			t.Errorf("%+v: of tenant %q", one, seen.Tenant)
		}
	}
	if seen, err := (&Authorizer{Open: true}).Stream(attest.Caller{}); err != nil || !seen.Sees.Of("shop") {
		t.Error("open, and closed", err)
	}
}
