package jwks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// newKey is a key, and a key set that has it.
func newKey(t *testing.T, private bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	one := jose.JSONWebKey{Key: key, KeyID: "k", Algorithm: "ES256", Use: "sig"}
	if !private {
		one = one.Public()
	}
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{one}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The addresses to which the leader never connects, in any notation.
// Promise: security-tenants.md#key-sets
func TestAllowed(t *testing.T) {
	f := NewFetcher(FetcherConfig{Blocked: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}})
	for address, want := range map[string]bool{
		"192.0.2.1:443": true, "[2001:db8::1]:443": true, "172.16.0.1:80": true, "11.0.0.1:443": true,
		"10.1.2.3:443": false, "[fd00::1]:443": false, "[::ffff:10.1.2.3]:443": false, "[64:ff9b::a01:203]:443": false,
		"169.254.169.254:80": false, "[::ffff:169.254.169.254]:80": false, "[64:ff9b::a9fe:a9fe]:80": false, "[64:ff9b:1:a9fe:a9:fe00::]:80": false, "[64:ff9b:1::a9fe:a9fe]:80": false, "[2002:a9fe:a9fe::1]:80": false, "[::a9fe:a9fe]:80": false,
		"[fe80::1]:80": false, "[fe80::1%eth0]:80": false, "[fd00:ec2::254]:80": false, "100.100.100.200:80": false, "168.63.129.16:80": false, "192.0.0.192:80": false,
		"127.0.0.1:80": false, "127.9.9.9:80": false, "[::1]:80": false, "[::ffff:127.0.0.1]:80": false, "0.0.0.0:80": false, "[::]:80": false, "224.0.0.1:80": false, "[ff02::1]:80": false,
		"name:80": false,
	} {
		if err := f.allowed(address); (err == nil) != want {
			t.Errorf("%s: %v, want allowed %v", address, err, want)
		}
	}
	open := NewFetcher(FetcherConfig{Loopback: true})
	for address, want := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "10.1.2.3:443": true, "169.254.169.254:80": false} {
		if err := open.allowed(address); (err == nil) != want {
			t.Errorf("with loopback, %s: %v", address, err)
		}
	}
}

// Whatever servers send, the result is keys or an error, at a bounded cost.
// Promise: security-tenants.md#key-sets
func TestFetch(t *testing.T) {
	keys, secret := newKey(t, false), newKey(t, true)
	var pages map[string]http.HandlerFunc
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	}
	to := func(url string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusFound) }
	}
	var sent atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := pages[r.URL.Path]; page != nil {
			page(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	defer s.Close()
	key := strings.TrimSuffix(strings.TrimPrefix(keys, `{"keys":[`), "]}")
	// Two that a slow server keeps: nothing ends before the client has gone.
	slow := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"keys"`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	pages = map[string]http.HandlerFunc{
		"/keys":   text(keys),
		"/mixed":  text(`{"keys": [{"kty": "unknown"}, ` + key + `], "more": 1}`),
		"/padded": text(keys + strings.Repeat(" ", mostBody)), "/many": text(`{"keys": [` + strings.Repeat(key+", ", mostKept/len(key)) + key + `]}`),
		"/hop1": to("/one"), "/hop2": to("/hop1"), "/hop3": to("/hop2"),
		"/headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*mostHeaders))
			fmt.Fprint(w, keys)
		},
		"/private": text(secret), "/empty": text(`{"keys": []}`), "/text": text("<html>"), "/list": text("[]"), "/null": text("null"), "/bad": text(`{"keys": [{"kty": "RSA", "n": "", "e": ""}]}`),
		"/one": to("/keys"), "/credentials": to("http://169.254.169.254/latest/meta-data/"), "/file": to("file:///etc/passwd"), "/round": to("/round"), "/user": to("http://a:b@" + s.Listener.Addr().String() + "/keys"),
		"/slow": slow, "/never": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"/endless": func(w http.ResponseWriter, _ *http.Request) {
			for {
				n, err := w.Write(make([]byte, 1<<16))
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		},
		"/good/.well-known/openid-configuration": text(`{"jwks_uri": "` + s.URL + `/keys"}`),
		"/away/.well-known/openid-configuration": text(`{"jwks_uri": "http://169.254.169.254/"}`),
		"/odd/.well-known/openid-configuration":  text(`{"jwks_uri": "file:///etc/passwd"}`),
		"/none/.well-known/openid-configuration": text(`{}`),
	}
	f := NewFetcher(FetcherConfig{Loopback: true})
	const good, bad, blocked = 0, 1, 2
	want := map[string]int{"/keys": good, "/mixed": good, "/one": good, "/hop2": good, "issuer /good": good, "issuer /good/": good, "/credentials": blocked, "issuer /away": blocked}
	for _, path := range strings.Split("/private,/empty,/text,/list,/null,/bad,/endless,/padded,/many,/nothing,issuer /odd,issuer /none,issuer /nothing,/file,/round,/hop3,/headers,/user,/slow,/never", ",") {
		want[path] = bad
	}
	for path, want := range want {
		from := normal.KeySource{URI: s.URL + path}
		if issuer, is := strings.CutPrefix(path, "issuer "); is {
			from = normal.KeySource{Issuer: s.URL + issuer}
		}
		if path == "/slow" || path == "/never" {
			from.Timeout = 100 * time.Millisecond
		}
		got, err := f.Fetch(t.Context(), from)
		if (err == nil) != (want == good) || want == good && got != keys || errors.Is(err, errBlocked) != (want == blocked) {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	if n := sent.Load(); n > 16<<20 { // bytes in transit when the reader stopped
		t.Errorf("%d bytes of an endless answer were taken", n)
	}
}

// answerOf returns the answer of a term for one key set.
func answerOf(t *testing.T, fetch func(context.Context, normal.KeySource) (string, error), s normal.KeySource) answer {
	t.Helper()
	term := termOf(fetch, []object.ID{normal.KeysID("n", s)})
	var asking sync.WaitGroup
	defer asking.Wait()
	term.fetchDue(t.Context(), &asking, time.Now())
	return <-term.answers
}

// Every failure comes at the end of the rule's time, so that it does not tell closed ports, open ports, silent ports
// and blocked addresses apart. Keys are returned at once.
// Promise: security-tenants.md#key-sets
func TestFailuresTakeOneTime(t *testing.T) {
	keys := newKey(t, false)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			fmt.Fprint(w, keys)
		}
	}))
	defer s.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	const closed = "127.0.0.1:1"
	f := NewFetcher(FetcherConfig{Loopback: true})
	const limit = 400 * time.Millisecond
	for what, uri := range map[string]string{"open": s.URL, "closed": "http://" + closed, "silent": "http://" + silent.Addr().String(),
		"blocked": "http://169.254.169.254/keys", "no URL": "file:///etc/passwd"} {
		began := time.Now()
		if a := answerOf(t, f.Fetch, normal.KeySource{URI: uri, Timeout: limit}); a.err == nil {
			t.Errorf("%s: no error", what)
		}
		if took := time.Since(began); took < limit {
			t.Errorf("%s: the failure is known after %v, want %v", what, took, limit)
		}
	}
	began := time.Now()
	if a := answerOf(t, f.Fetch, normal.KeySource{URI: s.URL + "/keys", Timeout: mostTimeout}); a.err != nil || a.keys != keys ||
		time.Since(began) > mostTimeout/2 {
		t.Errorf("%s, %v after %v", a.keys, a.err, time.Since(began))
	}
}

// A name that resolves to an address of this machine, or of the cluster, is refused without a request.
// Promise: security-tenants.md#key-sets
func TestNameOfLoopback(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ofCluster := func(a netip.Addr) bool { return a.IsLoopback() }
	for _, host := range []string{"localhost", "127.0.0.1", "127.1", "0"} {
		for _, c := range []FetcherConfig{{}, {Loopback: true, Cluster: ofCluster}} {
			_, err := NewFetcher(c).Fetch(t.Context(), normal.KeySource{URI: "http://" + host + ":" + port + "/keys"})
			if err == nil || strings.HasPrefix(host, "127.0") && !errors.Is(err, errBlocked) {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
	if asked.Load() != 0 {
		t.Errorf("%d requests arrived", asked.Load())
	}
}

// TLS: a server with an unknown issuer is refused, one with an operator's root is accepted; a redirection from TLS to
// plain HTTP is refused.
func TestTLS(t *testing.T) {
	keys := newKey(t, false)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keys) }))
	defer plain.Close()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" {
			http.Redirect(w, r, plain.URL, http.StatusFound)
			return
		}
		fmt.Fprint(w, keys)
	}))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	for _, c := range []struct {
		roots *x509.CertPool
		path  string
		good  bool
	}{{nil, "/", false}, {roots, "/", true}, {roots, "/plain", false}} {
		f := NewFetcher(FetcherConfig{Loopback: true, Roots: c.roots})
		if got, err := f.Fetch(t.Context(), normal.KeySource{URI: s.URL + c.path}); (err == nil && got == keys) != c.good {
			t.Errorf("%s, roots %v: %s, %v", c.path, c.roots != nil, got, err)
		}
	}
}

// A rule's own time counts, within bounds: one that waits for ever keeps one of the few places in which key sets are
// fetched.
// Promise: security-tenants.md#key-sets
func TestTimeOfAFetch(t *testing.T) {
	for stated, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Millisecond: time.Millisecond, 30 * time.Second: 30 * time.Second, time.Hour: 30 * time.Second, -1: 5 * time.Second} {
		if got := limitOf(stated); got != want {
			t.Errorf("%v: %v, want %v", stated, got, want)
		}
	}
}
