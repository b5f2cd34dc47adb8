package serve_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

// spareStub is a Spare that accepts everything, or refuses for a reason.
type spareStub struct {
	mu    sync.Mutex
	away  bool
	why   error
	taken []serve.Entry
	ends  []time.Time
}

func (a *spareStub) Away() bool             { a.mu.Lock(); defer a.mu.Unlock(); return a.away }
func (a *spareStub) Longest() time.Duration { return 4 * time.Hour }

func (a *spareStub) Spend(e serve.Entry, shownEnds time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why == nil {
		a.taken, a.ends = append(a.taken, e), append(a.ends, shownEnds)
	}
	return a.why
}

// While the journal is away, a caller with a certificate of its own gets another, short-lived one. A caller with a
// token alone waits, whoever's certificate comes with it. No certificate is issued without a record.
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestRenewalsWhileTheJournalIsAway(t *testing.T) {
	spare := &spareStub{}
	cfg := quiet()
	cfg.Fallback = spare
	ca := servetest.Start(t, cfg)
	own, _ := first(t, ca, "shop", "cart")
	csr, _ := request(t)
	byCert, byToken := dial(t, ca, own), dial(t, ca, nil)
	defer byCert.Close()
	defer byToken.Close()
	ask := func(token string, ttl time.Duration) (time.Duration, error) {
		conn := byCert
		if token != "" && ttl == 0 {
			conn = byToken
		}
		chain, err := create(t.Context(), conn, token, &securityv1.IstioCertificateRequest{Csr: csr, ValidityDuration: int64(ttl / time.Second)})
		if err != nil {
			return 0, err
		}
		block, _ := pem.Decode([]byte(chain[0]))
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(leaf.NotAfter), nil
	}
	if life, err := ask("", 24*time.Hour); err != nil || life < 20*time.Hour || len(spare.taken) != 0 {
		t.Fatalf("while the journal is there: %v for %v, %d in the spare", err, life, len(spare.taken))
	}
	before := len(ca.Entries())
	ca.BreakJournal(errors.New("etcd is gone"))
	for _, away := range []bool{false, true} { // noticed by the failure, or known before
		spare.mu.Lock()
		spare.away, spare.why = away, nil
		spare.mu.Unlock()
		for ttl, most := range map[time.Duration]time.Duration{0: 4 * time.Hour, 90 * 24 * time.Hour: 4 * time.Hour, time.Hour: time.Hour} {
			if life, err := ask("", ttl); err != nil || life > most {
				t.Errorf("away %t: a renewal for %v: %v, %v", away, ttl, life, err)
			}
		}
		for what, token := range map[string]string{"its own token": ca.Token("shop", "cart"), "another's token": ca.Token("shop", "other")} {
			if _, err := ask(token, time.Hour); status.Code(err) != codes.Unavailable {
				t.Errorf("away %t: %s beside its certificate: %v", away, what, err)
			}
			if _, err := ask(token, 0); status.Code(err) != codes.Unavailable {
				t.Errorf("away %t: %s: %v", away, what, err)
			}
		}
		spare.mu.Lock()
		spare.why = errors.New("the allowance is used up")
		spare.mu.Unlock()
		if _, err := ask("", 0); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "used up") {
			t.Errorf("away %t: refused by the spare: %v", away, err)
		}
		spare.mu.Lock()
		spare.why = serve.ErrRevoked
		spare.mu.Unlock()
		if _, err := ask("", 0); status.Code(err) != codes.PermissionDenied {
			t.Errorf("away %t: revoked: %v", away, err)
		}
	}
	ca.BreakJournal(nil)
	spare.mu.Lock()
	spare.why = nil
	spare.mu.Unlock()
	if _, err := ask("", 0); err != nil { // a journal that is known to be away is not waited for
		t.Error(err)
	}
	signed := ca.Signed()
	if _, err := ask("", 0); err != nil || ca.Signed() != signed+1 {
		t.Errorf("signed %d times, %v", ca.Signed()-signed, err)
	}
	if len(spare.taken) != 8 || len(ca.Entries()) != before {
		t.Fatalf("%d in the spare, %d in the journal", len(spare.taken), len(ca.Entries())-before)
	}
	for i, e := range spare.taken {
		if e.Previous != serve.Serial(own.Leaf) || !spare.ends[i].Equal(own.Leaf.NotAfter) || e.Identity.String() != "spiffe://cluster.local/ns/shop/sa/cart" {
			t.Errorf("%+v, shown until %v", e, spare.ends[i])
		}
	}
}
