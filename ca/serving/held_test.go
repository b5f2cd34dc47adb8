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

// A certificate of a new signer is presented only once callers trust it; until then the previous certificate is, and no
// certificate is missing. Without a previous certificate the new one is presented, and counts as missing. A certificate
// that counted as trusted while no caller verified it is missing as soon as a caller verifies it and does not trust it.
// A certificate that callers have trusted once is not missing again.
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
