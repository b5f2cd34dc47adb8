package serving

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
)

// A certificate of a new signer is presented only once it is believed; until then the one before is, and nothing is missing. Where there was none
// before, the new one is presented, and something is missing. What is believed since nobody verifies it yet is missing once somebody does, and does not believe it;
// what callers have believed once is not.
func TestHeld(t *testing.T) {
	authority := func(epoch uint64) *issue.Authority {
		a, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), epoch, time.Hour, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	s, err := New([]string{"istiod.istio-system.svc"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	first, second := authority(1), authority(2)
	var no error
	state, callers := &keyring.State{Active: first}, false
	h := NewHeld(s, func() *keyring.State { return state }, func(*tls.Certificate) Trust { return Trust{callers, no} })
	presents := func(want *issue.Authority, missing, waiting bool) {
		t.Helper()
		pair, err := h.Config().GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Leaf.CheckSignatureFrom(want.Certificate); err != nil {
			t.Errorf("presented: %v", err)
		}
		if got, err := h.Missing(); err != nil || (got != nil) != missing {
			t.Errorf("missing: %v, %v", got, err)
		}
		if got := h.Waiting(); (got != nil) != waiting {
			t.Errorf("waiting: %v", got)
		}
	}
	presents(first, false, false)
	callers, no = true, errors.New("not yet")
	presents(first, true, true)
	no = nil
	presents(first, false, false)
	no = errors.New("somebody has taken the roots away")
	presents(first, false, false)
	state, no = &keyring.State{Active: second}, errors.New("the new root is not there yet")
	presents(first, false, true)
	state = &keyring.State{Sealed: errors.New("sealed")}
	presents(first, false, true)
	state, no = &keyring.State{Active: second}, nil
	presents(second, false, false)
	h = NewHeld(s, func() *keyring.State { return &keyring.State{Sealed: errors.New("sealed")} }, func(*tls.Certificate) Trust { return Trust{} })
	s.own = nil
	if _, err := h.Missing(); err == nil {
		t.Error("nothing is missing without a certificate")
	}
}
