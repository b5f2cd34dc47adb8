package keyring_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
)

// scripted is a CASource whose answers the test sets.
type scripted struct{ now atomic.Pointer[answer] }

type answer struct {
	ca  keyring.UserCA
	err error
}

func (s *scripted) Read() (keyring.UserCA, error) { a := s.now.Load(); return a.ca, a.err }

func (s *scripted) say(ca keyring.UserCA, err error) { s.now.Store(&answer{ca, err}) }

// selfSigned is an authority as its files; firstOnly: it is istiod's own.
func selfSigned(t *testing.T, a *authority, firstOnly bool) keyring.UserCA {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	return keyring.UserCA{From: "Secret istio-system/x", FirstOnly: firstOnly,
		Files: issue.Files{Cert: cert, Root: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})}}
}

// The root that istiod created is adopted if there is no keyring yet, so that its certificates stay valid. Until its
// existence is known, no root is created. Later istiod's Secret has no effect: the root rotates and ages like our own;
// a user's CA is followed.
// Promise: security-ca.md#your-own-ca
func TestIstiodsRoot(t *testing.T) {
	w := newHarness(t)
	source := &scripted{}
	source.say(keyring.UserCA{}, errors.New("the API server is away"))
	with := func(c *keyring.Config) { c.CACerts = source }
	r := w.replica(with)
	if report := r.settle(); !strings.Contains(report.Sealed, "the API server is away") || len(w.blobs("keys/")) != 0 {
		t.Fatalf("before it is known whether there is a CA: %+v", report)
	}
	istiod, other, user := newAuthority(t, "istiod", nil), newAuthority(t, "istiod again", nil), newAuthority(t, "user", nil)
	source.say(selfSigned(t, istiod, true), nil)
	r.settle()
	report := r.settle()
	if len(report.Epochs) != 1 || report.Epochs[0].Origin != "istio-ca-secret" || r.mustLeaf("web").Leaf.CheckSignatureFrom(istiod.cert) != nil {
		t.Fatalf("it was not taken over: %+v", report.Epochs)
	}
	before := w.blobs("keys/")[0].Revision
	for _, change := range []func(){
		func() { source.say(selfSigned(t, other, true), nil) },
		func() { source.say(keyring.UserCA{None: true}, nil) },
		func() { source.say(keyring.UserCA{}, errors.New("away")) },
	} {
		change()
		r.settle()
		if now := r.settle(); len(now.Epochs) != 1 || w.blobs("keys/")[0].Revision != before {
			t.Fatalf("the keyring is another one: %+v", now.Epochs)
		}
	}
	if err := r.Rotate(t.Context(), true); err == nil || !strings.Contains(err.Error(), "unknown whether this mesh uses the user's own CA: away") {
		t.Errorf("rotated while it is not known whether there is a CA of the user's: %v", err)
	}
	source.say(selfSigned(t, other, true), nil)
	if err := r.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, r.settle(), keyring.Retiring, keyring.Active)
	if origin := r.settle().Epochs[1].Origin; origin != "self-signed" {
		t.Errorf("rotated to %s", origin)
	}
	source.say(selfSigned(t, user, false), nil)
	r.settle()
	wantStatuses(t, r.settle(), keyring.Retiring, keyring.Active, keyring.Prepared)
}

// The root that was istiod's has a successor prepared when most of its time is over.
func TestIstiodsRootGrowsOld(t *testing.T) {
	w := newHarness(t)
	source := &scripted{}
	istiod := newAuthority(t, "istiod", nil)
	source.say(selfSigned(t, istiod, true), nil)
	r := w.replica(func(c *keyring.Config) { c.CACerts = source })
	wantStatuses(t, r.settle(), keyring.Active)
	r.mustLeaf("web")
	w.later(istiod.cert.NotAfter.Sub(w.now()) - 100*time.Hour)
	r.settle()
	if report := r.settle(); len(report.Epochs) != 2 || report.Epochs[1].Origin != "self-signed" {
		t.Errorf("%+v", report.Epochs)
	}
}

// The user's revocation lists come with the CA, to every replica, also to those without the source. Of one issuer the
// newest list stays: late or missing files of a replica undo nothing.
// Promise: security-ca.md#your-own-ca
func TestUsersLists(t *testing.T) {
	w := newHarness(t)
	root := newAuthority(t, "root", nil)
	lists := func(number int64) []byte {
		der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(100 * time.Hour)}, root.cert, root.key)
		if err != nil {
			t.Fatal(err)
		}
		return issue.EncodeCRL(der)
	}
	source := &scripted{}
	say := func(text []byte) {
		ca := selfSigned(t, root, false)
		ca.Lists = text
		source.say(ca, nil)
	}
	say(lists(2))
	r := w.replica(func(c *keyring.Config) { c.CACerts = source })
	r.settle() // else the other one might make the keyring
	other := w.replica()
	for i, c := range []struct {
		text []byte
		want int64
	}{{lists(2), 2}, {lists(3), 3}, {lists(2), 3}, {nil, 3}} {
		say(c.text)
		r.settle()
		r.settle()
		other.settle()
		other.settle()
		for _, r := range []*replica{r, other} {
			if got := r.State().Lists; len(got) != 1 || got[0].Number.Int64() != c.want {
				t.Errorf("step %d: %v", i, got)
			}
		}
	}
	if version := r.settle(); len(version.Epochs) != 1 {
		t.Errorf("a list makes an epoch: %+v", version.Epochs)
	}
}
