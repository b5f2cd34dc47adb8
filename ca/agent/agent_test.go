package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/issue"
)

var testDomain = spiffeid.RequireTrustDomainFromString("cluster.local")

func authority(t testing.TB, n uint64) *issue.Authority {
	t.Helper()
	a, err := issue.SelfSigned(testDomain, n, 10*365*24*time.Hour, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fakeCA signs in memory, under the bubble's clock.
type fakeCA struct {
	mu     sync.Mutex
	signer *issue.Authority
	bundle []*issue.Authority
	away   error
	asked  []string // times and credentials of the requests
	began  time.Time
}

func (f *fakeCA) sign(_ context.Context, csr []byte, with credential) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("%s %s", time.Since(f.began).Round(time.Hour), with))
	if f.away != nil {
		return nil, f.away
	}
	id, err := spiffeid.FromPath(testDomain, "/ns/shop/sa/cart")
	if err != nil {
		return nil, err
	}
	got, err := issue.Issue(f.signer, issue.Request{CSR: csr, Identity: id}, issue.Policy{Jitter: -1}, time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	roots := f.signer.Roots
	for _, b := range f.bundle {
		roots = append(roots[:len(roots):len(roots)], b.Roots...)
	}
	return got.Encode(roots), nil
}

func (f *fakeCA) set(edit func()) { f.mu.Lock(); edit(); f.mu.Unlock() }

func (f *fakeCA) log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.asked, ", ")
	f.asked = nil
	return out
}

func startFake(t *testing.T, ca *fakeCA, edit func(*Config)) *Agent {
	t.Helper()
	cfg := Config{
		Address: "ca:15012", Roots: issue.EncodeCertificates(ca.signer.Roots...), TokenFile: "unused", sign: ca.sign,
		Log: slog.New(slog.DiscardHandler), report: func(context.Context, []string) error { return nil },
	}
	if edit != nil {
		edit(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

// TestLifeOfACertificate, in the bubble's time: half-lives, an outage longer than a certificate, and the way back.
func TestLifeOfACertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &fakeCA{signer: authority(t, 1), began: time.Now()}
		a := startFake(t, ca, func(c *Config) { c.Jitter = 1e-9 })
		<-a.Ready()
		first := a.Identity()
		if first.URI != "spiffe://cluster.local/ns/shop/sa/cart" || a.Identity().cert.Leaf == nil {
			t.Errorf("%+v", first)
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if got, want := ca.log(), "0s token, 12h0m0s certificate, 24h0m0s certificate"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		last := a.Identity()
		if last.Serial == first.Serial {
			t.Error("the certificate is still the first")
		}
		ca.set(func() { ca.away = status.Error(codes.Unavailable, "sealed") })
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if a.Identity() != last {
			t.Error("the old certificate was given up while the CA was away")
		}
		if _, err := a.LastFailure(); err == nil || !strings.Contains(err.Error(), "sealed") {
			t.Errorf("last failure: %v", err)
		}
		if n := strings.Count(ca.log(), ","); n < 1000 || n > 8000 {
			t.Errorf("%d attempts in 36 hours of outage", n)
		}
		ca.set(func() { ca.away = nil })
		time.Sleep(retryMax)
		synctest.Wait()
		if a.Identity() == last {
			t.Error("no new certificate 30 s after the CA came back")
		}
		if _, err := a.LastFailure(); err != nil {
			t.Errorf("last failure after the return: %v", err)
		}
	})
}

// A CSR names exactly the configured identity; without one it names no identity.
func TestNameOfCSRs(t *testing.T) {
	for _, name := range []string{"", "spiffe://cluster.local/ns/shop/sa/cart"} {
		ca := &fakeCA{signer: authority(t, 1), began: time.Now()}
		named := make(chan string, 1)
		a := startFake(t, ca, func(c *Config) {
			if name != "" {
				c.Name = spiffeid.RequireFromString(name)
			}
			c.sign = func(ctx context.Context, text []byte, with credential) ([]string, error) {
				block, _ := pem.Decode(text)
				csr, err := x509.ParseCertificateRequest(block.Bytes)
				if err != nil {
					return nil, err
				}
				if len(csr.DNSNames)+len(csr.Subject.Names) > 0 {
					t.Errorf("the CSR has other names: %v, %v", csr.DNSNames, csr.Subject)
				}
				named <- strings.Trim(fmt.Sprint(csr.URIs), "[]")
				return ca.sign(ctx, text, with)
			}
		})
		if got := <-named; got != name {
			t.Errorf("the CSR names %q, want %q", got, name)
		}
		<-a.Ready()
	}
}

// TestAnswersThatAreNotTaken leave the certificate in use alone.
func TestAnswersThatAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &fakeCA{signer: authority(t, 1), began: time.Now()}
		other := authority(t, 2)
		var bend func([]string) []string
		a := startFake(t, ca, func(c *Config) {
			c.sign = func(ctx context.Context, csr []byte, with credential) ([]string, error) {
				answer, err := ca.sign(ctx, csr, with)
				if bend != nil {
					answer = bend(answer)
				}
				return answer, err
			}
		})
		<-a.Ready()
		good := a.Identity()
		old := string(good.Chain)
		for _, c := range []struct {
			says string
			bend func([]string) []string
		}{
			{"0 elements", func([]string) []string { return nil }},
			{"another key", func(s []string) []string { return []string{old, s[1]} }},
			{"does not chain", func(s []string) []string { return []string{s[0], string(issue.EncodeCertificates(other.Roots...))} }},
			{"root bundle", func(s []string) []string { return []string{s[0], "junk"} }},
			{"root bundle", func(s []string) []string { return []string{s[0], s[1][:200] + "\n" + s[1]} }},
			{"element 0", func(s []string) []string { return []string{s[0][:200], s[1]} }},
		} {
			bend = c.bend
			a.Renew()
			synctest.Wait()
			if _, err := a.LastFailure(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q: %v", c.says, err)
			}
			if a.Identity() != good || len(a.Roots()) != 1 {
				t.Errorf("%q: taken", c.says)
			}
		}
	})
}

// Roots are a union: a new root comes from a file, a push or a response, and is removed when no source names it.
func TestRootsAreAUnion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root.pem")
	write := func(as ...*issue.Authority) {
		var text []byte
		for _, a := range as {
			text = append(text, issue.EncodeCertificates(a.Roots...)...)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		one, two, three := authority(t, 1), authority(t, 2), authority(t, 3)
		ca := &fakeCA{signer: one, began: time.Now()}
		write(one)
		a := startFake(t, ca, func(c *Config) { c.RootFile, c.Roots = file, nil })
		<-a.Ready()
		check := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if got := a.Roots(); len(got) != want {
				t.Errorf("%s: %d roots, want %d", what, len(got), want)
			}
			secrets, _ := a.hub.get()
			if got := len(secrets[trustName].roots); got != want {
				t.Errorf("%s: %d roots published, want %d", what, got, want)
			}
		}
		check("at first", 1)
		write(one, two)
		time.Sleep(a.cfg.RootPoll)
		check("file", 2)
		if err := os.WriteFile(file, []byte("half a fi"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(a.cfg.RootPoll)
		check("damaged file", 2)
		if err := a.SetTrust(issue.EncodeCertificates(three.Roots...), nil); err != nil {
			t.Fatal(err)
		}
		check("push", 3)
		if err := a.SetTrust([]byte("junk"), nil); err == nil {
			t.Error("junk was taken as roots")
		}
		check("push of junk", 3)
		ca.set(func() { ca.signer = two })
		write(two)
		a.Renew()
		time.Sleep(a.cfg.RootPoll)
		check("the old root retired", 2)
	})
}

func TestOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	ca := &fakeCA{signer: authority(t, 1)}
	a := startFake(t, ca, func(c *Config) { c.OutputDir = dir })
	<-a.Ready()
	for range 3 {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert-chain.pem"), filepath.Join(dir, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		if pair.Leaf.SerialNumber.Text(16) != a.Identity().Serial {
			t.Error("the files hold another certificate")
		}
		before := a.Identity()
		seen, changed := a.hub.get()
		a.Renew()
		<-changed
		for now, _ := a.hub.get(); now[certificateName] == seen[certificateName]; now, _ = a.hub.get() {
		}
		a.publish() // returns after the one that is under way
		if a.Identity() == before {
			t.Error("not renewed")
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 5 { // ..data, its directory, three links
		t.Errorf("left over: %v", entries)
	}
	for _, name := range []string{"cert-chain.pem", "key.pem", "root-cert.pem"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v", info.Mode(), err)
	}
}

// TestKeysAreNotPrinted: neither verbs, nor JSON, nor the log of a life with failures show the key.
func TestKeysAreNotPrinted(t *testing.T) {
	var logged bytes.Buffer
	ca := &fakeCA{signer: authority(t, 1)}
	a := startFake(t, ca, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	<-a.Ready()
	a.mu.Lock()
	key := a.key
	a.mu.Unlock()
	text := fmt.Sprintf("%s %v %x %q %+v %#v", key, key, key, key, struct{ K keyPEM }{key}, key)
	if strings.Contains(text, "PRIVATE") || strings.Contains(text, "50524956") || strings.Contains(text, "0x2d") {
		t.Errorf("printed: %s", text)
	}
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "key", key)
	if out := logged.String(); strings.Contains(out, "PRIVATE") || !strings.Contains(out, "[sealed]") {
		t.Errorf("logged: %s", out)
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	_, err := New(Config{RenewAt: 2, RootPoll: -1, Socket: strings.Repeat("x", 200)})
	for _, want := range []string{"Address", "RootFile", "RenewAt", "RootPoll", "Socket"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	for _, bad := range []Config{{RenewAt: math.NaN()}, {Jitter: math.NaN()}} {
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "NaN") {
			t.Errorf("NaN is accepted: %v", err)
		}
	}
	if _, err := New(Config{Address: "a:1", Roots: []byte("junk")}); err == nil || !strings.Contains(err.Error(), "Roots") {
		t.Error(err)
	}
}

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	a := &Agent{cfg: Config{TokenFile: file}}
	if _, err := a.token(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for content, says := range map[string]string{"": "empty", " \n": "empty", "se cret": "contains a space", "sec\x00ret": "a control character", strings.Repeat("s", maxToken+1): "65537 bytes"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := a.token(); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	if err := os.WriteFile(file, []byte("good\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := a.token(); got != "good" || err != nil {
		t.Error(got, err)
	}
}
