package main

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/status"
)

// configMaps is a fake API server that has no ConfigMaps at first.
type configMaps struct {
	mu      sync.Mutex
	roots   map[string]string // by namespace
	follows bool
}

func (c *configMaps) Follow(ctx context.Context, s status.Seen[corev1.ConfigMap], _ func(error)) error {
	c.mu.Lock()
	c.follows = true
	c.mu.Unlock()
	s.Replace(map[status.Key]status.Found[corev1.ConfigMap]{})
	<-ctx.Done()
	return ctx.Err()
}

func (c *configMaps) Get(context.Context, status.Key) (status.Found[corev1.ConfigMap], error) {
	return status.Found[corev1.ConfigMap]{}, errors.New("nothing is to be read again")
}

func (c *configMaps) Write(_ context.Context, k status.Key, o *corev1.ConfigMap) (status.Found[corev1.ConfigMap], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots[k.Namespace] = o.Data["root-cert.pem"] + o.Data["ca-crl.pem"]
	return status.Found[corev1.ConfigMap]{Object: o, Version: 1}, nil
}

// ringOf is a fake keyring with a sequence of states.
type ringOf struct {
	mu      sync.Mutex
	state   *keyring.State
	changed chan struct{}
}

func (r *ringOf) State() *keyring.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *ringOf) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *ringOf) set(s *keyring.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
	close(r.changed)
	r.changed = make(chan struct{})
}

// A leader writes all roots that its keyring trusts. While the keyring is sealed, or not followed, it writes nothing,
// and a problem gives the reason.
func TestRootCertsFollowKeyring(t *testing.T) {
	var roots []*x509.Certificate
	for epoch := range uint64(2) {
		a, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), epoch+1, time.Hour, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, a.Certificate)
	}
	synctest.Test(t, func(t *testing.T) {
		api := &configMaps{roots: map[string]string{}}
		ring := &ringOf{state: &keyring.State{Sealed: keyring.ErrNotLoaded}, changed: make(chan struct{})}
		never := make(chan struct{})
		r := &rootCerts{
			content: ofRoots,
			writer: status.New(status.Config[corev1.ConfigMap]{API: api, Kind: "ConfigMap", Log: slog.New(slog.DiscardHandler),
				Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }}),
			namespaces: func() ([]string, bool, <-chan struct{}) { return []string{"shop"}, true, never },
			ring:       ring, log: slog.New(slog.DiscardHandler),
		}
		term := func(lead func(context.Context, kv.Epoch)) (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				lead(ctx, kv.Epoch{Revision: 1})
			}()
			return func() { cancel(); <-ended }
		}
		check := func(what, problem string, trusted ...*x509.Certificate) {
			t.Helper()
			time.Sleep(time.Minute) // of the bubble
			synctest.Wait()
			said := ""
			for _, p := range r.problems() {
				said += p.String()
			}
			api.mu.Lock()
			defer api.mu.Unlock()
			if got := api.roots["shop"]; got != string(issue.EncodeCertificates(trusted...)) || !strings.Contains(said, problem) || problem == "" && said != "" {
				t.Errorf("%s: %q is there, problems %q, want %q", what, got, said, problem)
			}
		}
		end := term(r.lead)
		check("not loaded", "")
		ring.set(&keyring.State{Sealed: errors.New("no key encryption key"), Bundle: roots[:1]})
		check("sealed", "no key encryption key")
		ring.set(&keyring.State{Bundle: roots[:1]})
		check("unsealed", "", roots[0])
		ring.set(&keyring.State{Bundle: roots})
		check("rotated", "", roots...)
		ring.set(&keyring.State{Sealed: errors.New("sealed again"), Bundle: roots[1:]})
		check("sealed again", "sealed again", roots...)
		end()
		check("no leader", "", roots...)
		end = term(r.leadWithoutKeyring)
		check("without a keyring", "--kek", roots...)
		end()
		check("no leader any more", "", roots...)
	})
}

// The user's revocation lists are written with our lists of the other issuers; without lists of the user nothing is
// written or followed.
func TestListsFollowKeyring(t *testing.T) {
	list := func(epoch uint64) *x509.RevocationList {
		a, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), epoch, time.Hour, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		der, err := issue.CRL(a, big.NewInt(int64(epoch)), nil, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseRevocationList(der)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	users, ours := list(1), list(2)
	root := []*x509.Certificate{{Raw: []byte("root")}}
	both := []keyring.CRL{{DER: ours.Raw}, {DER: users.Raw}}
	synctest.Test(t, func(t *testing.T) {
		api := &configMaps{roots: map[string]string{}}
		ring := &ringOf{state: &keyring.State{Bundle: root, CRLs: both}, changed: make(chan struct{})}
		never := make(chan struct{})
		r := &rootCerts{
			content: ofLists,
			writer: status.New(status.Config[corev1.ConfigMap]{API: api, Kind: "ConfigMap", Log: slog.New(slog.DiscardHandler),
				Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }}),
			namespaces: func() ([]string, bool, <-chan struct{}) { return []string{"shop"}, true, never },
			ring:       ring, log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.lead(ctx, kv.Epoch{Revision: 1})
		}()
		check := func(what string, follows bool, lists ...*x509.RevocationList) {
			t.Helper()
			time.Sleep(time.Minute) // of the bubble
			synctest.Wait()
			want := ""
			for _, l := range lists {
				want += string(issue.EncodeCRL(l.Raw))
			}
			api.mu.Lock()
			defer api.mu.Unlock()
			if api.roots["shop"] != want || api.follows != follows || len(r.problems()) > 0 {
				t.Errorf("%s: followed: %v, problems %v, there is %q, want %q", what, api.follows, r.problems(), api.roots["shop"], want)
			}
		}
		check("none of the user's", false)
		ring.set(&keyring.State{Sealed: errors.New("sealed")})
		check("sealed", false)
		ring.set(&keyring.State{Bundle: root, CRLs: both, Lists: []*x509.RevocationList{users}})
		check("with the user's", true, users, ours)
		cancel()
		<-ended
	})
}
