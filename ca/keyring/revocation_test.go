package keyring_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
)

func list(t *testing.T, r *replica, epoch uint64) *x509.RevocationList {
	t.Helper()
	for _, c := range r.State().CRLs {
		if c.Epoch == epoch {
			l, err := x509.ParseRevocationList(c.DER)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
	}
	t.Fatalf("no list of epoch %d: %v", epoch, r.State())
	return nil
}

func serials(l *x509.RevocationList) map[string]bool {
	out := map[string]bool{}
	for _, e := range l.RevokedCertificateEntries {
		out[e.SerialNumber.Text(16)] = true
	}
	return out
}

func TestRevocation(t *testing.T) {
	w := newHarness(t)
	one, other := w.replica(), w.replica()
	one.settle()
	other.settle()
	first := list(t, one, 1)
	if len(first.RevokedCertificateEntries) != 0 || !first.NextUpdate.Equal(one.State().Bundle[0].NotAfter) || w.now().Sub(first.ThisUpdate) < time.Minute {
		t.Fatalf("first list: %d entries, %v to %v", len(first.RevokedCertificateEntries), first.ThisUpdate, first.NextUpdate)
	}
	bad, good, stolen := one.mustLeaf("bad"), one.mustLeaf("good"), other.mustLeaf("good")
	again := other.mustLeaf("bad")
	const badID = "spiffe://cluster.local/ns/default/sa/bad"
	found, err := one.Revoke(t.Context(), []string{strings.ToUpper(stolen.Serial), "00abcd"}, []string{badID})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Serials) != 2 || len(found.Unknown) != 1 || found.Unknown[0] != "abcd" ||
		len(found.Denied) != 1 || found.Denied[0].Identity != badID || found.Denied[0].Leaves != 2 || !found.Denied[0].Until.Equal(again.Leaf.NotAfter) {
		t.Fatalf("%+v", found)
	}
	other.settle()
	l := list(t, other, 1)
	if err := l.CheckSignatureFrom(other.State().Bundle[0]); err != nil {
		t.Fatal(err)
	}
	if got := serials(l); got[bad.Serial] || got[again.Serial] || !got[stolen.Serial] || !got["abcd"] || got[good.Serial] || len(got) != 2 {
		t.Fatalf("%v", got)
	}
	if l.Number.Cmp(first.Number) <= 0 {
		t.Fatalf("number %v after %v", l.Number, first.Number)
	}
	if !other.State().RevokedSerial(stolen.Serial) || other.State().RevokedSerial(good.Serial) {
		t.Error("RevokedSerial does not know")
	}
	for _, r := range []*replica{one, other} {
		if _, err := r.leaf("bad"); !errors.Is(err, keyring.ErrRevoked) {
			t.Fatalf("a revoked identity got a certificate: %v", err)
		}
		r.mustLeaf("good")
	}
	if same, err := one.Revoke(t.Context(), []string{stolen.Serial}, []string{badID}); err != nil || len(same.Serials) != 0 {
		t.Fatalf("revoked again: %+v, %v", same, err)
	}
	if denied, known := other.State().Denied(w.now()); !known || len(denied) != 1 || denied[0].Identity != badID {
		t.Fatalf("denied: %+v, %t", denied, known)
	}
	revokedThenRestored(t, one, bad.Serial, again.Serial, badID)
	for _, wrong := range []string{"", "0", "xyz", "-1", new(big.Int).Lsh(big.NewInt(1), 200).Text(16)} {
		if _, err := one.Revoke(t.Context(), []string{wrong}, nil); err == nil || !strings.Contains(err.Error(), "serial") {
			t.Errorf("serial %q: %v", wrong, err)
		}
	}
	if _, err := one.Revoke(t.Context(), nil, []string{"bad"}); err == nil || !strings.Contains(err.Error(), "identity") {
		t.Errorf("identity: %v", err)
	}
}

// revokedThenRestored continues from two revoked certificates, and from a revoked identity with two others. The list of
// the next issuer contains all entries that are not known to be another issuer's, the list of the old one is removed
// with it, and the identity can be restored without its old certificates.
func revokedThenRestored(t *testing.T, one *replica, bad, again, badID string) {
	t.Helper()
	if err := one.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := serials(list(t, one, 2)); !got["abcd"] || len(got) != 1 {
		t.Fatalf("list of epoch 2: %v", got)
	}
	if got := serials(list(t, one, 1)); len(got) != 2 {
		t.Fatalf("list of epoch 1: %v", got)
	}
	if err := one.Restore(t.Context(), []string{badID}); err != nil {
		t.Fatal(err)
	}
	one.mustLeaf("bad")
	if got := serials(list(t, one, 1)); len(got) != 4 || !got[bad] || !got[again] {
		t.Fatalf("list of epoch 1 after the identity is back: %v", got)
	}
	if denied, _ := one.State().Denied(time.Now()); len(denied) != 0 {
		t.Fatalf("denied after the identity is back: %v", denied)
	}
}

// While replicas issue as fast as they can, a denial lasts until the last certificate of the identity has ended.
// Promise: security-ca.md#what-revoking-an-identity-does, security-workloads.md#renewals-and-revocation
func TestRevocationRacesIssuing(t *testing.T) {
	w := newHarness(t)
	one, other := w.replica(), w.replica()
	one.settle()
	other.settle()
	var mu sync.Mutex
	var got []*issue.Issued
	var issuing sync.WaitGroup
	started := make(chan struct{}, 64)
	for i := range 8 {
		r := []*replica{one, other}[i%2]
		issuing.Go(func() {
			for {
				leaf, err := r.leaf("bad")
				if errors.Is(err, keyring.ErrRevoked) {
					return
				}
				if err != nil && !errors.Is(err, keyring.ErrStale) {
					t.Error(err)
					return
				}
				mu.Lock()
				got = append(got, leaf)
				mu.Unlock()
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 32 {
		<-started
	}
	if _, err := one.Revoke(t.Context(), nil, []string{"spiffe://cluster.local/ns/default/sa/bad"}); err != nil {
		t.Fatal(err)
	}
	issuing.Wait()
	denied, _ := one.State().Denied(w.now())
	if len(denied) != 1 {
		t.Fatalf("%v", denied)
	}
	for _, leaf := range got {
		if leaf.Leaf.NotAfter.After(denied[0].Until) {
			t.Errorf("certificate %s ends at %v, the denial at %v", leaf.Serial, leaf.Leaf.NotAfter, denied[0].Until)
		}
	}
}

// crowd issues many certificates to an identity, each authenticated by the previous one. It returns the serial number
// of the first, and the end of the last.
func crowd(t *testing.T, r *replica, identity string, begin time.Time, many int) (first string, end time.Time) {
	t.Helper()
	serial := func(i int) string { return fmt.Sprintf("%x", 0x10000+i) }
	var appending sync.WaitGroup
	for i := range many {
		appending.Go(func() {
			leaf := keyring.Issue{Serial: serial(i), Identity: identity, Epoch: 1, Generation: 1, NotAfter: begin.Add(time.Hour + time.Duration(i)*time.Second)}
			if i > 0 {
				leaf.Previous = serial(i - 1)
			}
			if err := r.Append(t.Context(), leaf); err != nil {
				t.Error(err)
			}
		})
	}
	appending.Wait()
	return serial(0), begin.Add(time.Hour + time.Duration(many-1)*time.Second)
}

// A workload cannot keep a certificate, or use the others' room in the lists: an identity with five times as many
// certificates as a list can contain is denied, and none of its certificates is in a list.
// Promise: security-workloads.md#renewals-and-revocation
func TestRevocationOfManyLeaves(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	const many, identity = 5000, "spiffe://cluster.local/ns/default/sa/crowd"
	first, end := crowd(t, r, identity, w.now(), many)
	if _, err := r.Revoke(t.Context(), []string{first}, nil); err == nil || !strings.Contains(err.Error(), "revoke the identity "+identity) {
		t.Fatalf("by the serial number of the first, with all that renewed it: %v", err)
	}
	out, err := r.Revoke(t.Context(), nil, []string{identity})
	if err != nil {
		t.Fatal(err)
	}
	if d := out.Denied; len(out.Serials) != 0 || len(d) != 1 || d[0].Leaves != many || !d[0].Until.Equal(end.UTC().Truncate(time.Second)) {
		t.Fatalf("%+v, the last ends at %v", out, end)
	}
	if _, err := r.Revoke(t.Context(), []string{"eeeeeee"}, nil); err != nil {
		t.Fatalf("another's certificate: %v", err)
	}
	if got := serials(list(t, r, 1)); len(got) != 1 || !got["eeeeeee"] {
		t.Fatalf("%d in the list", len(got))
	}
	if _, err := r.leaf("crowd"); !errors.Is(err, keyring.ErrRevoked) {
		t.Fatalf("a revoked identity got a certificate: %v", err)
	}
	if st := r.Stats(); st.RevokedSerials != 1 || st.RevokedIdentities != 1 {
		t.Errorf("%+v", st)
	}
	if err := r.Restore(t.Context(), []string{identity}); err == nil || !strings.Contains(err.Error(), end.UTC().Format(time.RFC3339)) {
		t.Fatalf("restored while it has more certificates than fit: %v", err)
	}
	w.later(end.Sub(w.now()) + 16*time.Minute) // its certificates have ended
	if denied, known := r.State().Denied(w.now()); !known || len(denied) != 0 {
		t.Errorf("denied when nothing is left to keep out: %v", denied)
	}
	if _, err := r.leaf("crowd"); !errors.Is(err, keyring.ErrRevoked) {
		t.Errorf("it gets a certificate because what it had has ended: %v", err)
	}
	if err := r.Restore(t.Context(), []string{identity}); err != nil {
		t.Fatal(err)
	}
	r.mustLeaf("crowd")
}

// A certificate is revoked together with those issued to its presenter, and with their renewals; other certificates of
// the identity stay valid.
// Promise: security-ca.md#revoking-by-serial-number, security-workloads.md#renewals-and-revocation
func TestRevocationFollowsRenewals(t *testing.T) {
	w := newHarness(t)
	r := w.replica(func(c *keyring.Config) { c.MaxRevoked = 70 })
	r.settle()
	first, _ := crowd(t, r, "spiffe://cluster.local/ns/default/sa/web", w.now(), 6)
	other := r.mustLeaf("web")
	out, err := r.Revoke(t.Context(), []string{first}, nil)
	if err != nil || len(out.Serials) != 6 {
		t.Fatalf("%+v, %v", out, err)
	}
	if got := serials(list(t, r, 1)); len(got) != 6 || got[other.Serial] {
		t.Fatalf("%v", got)
	}
}

// An identity with chained renewals uses at most a tenth of the lists when its first certificate is revoked by number,
// or when the identity is restored. The rest stays free for others.
// Promise: security-ca.md#restoring-and-the-revocation-lists, security-workloads.md#renewals-and-revocation
func TestOneRevocationTakesATenthOfTheLists(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	const identity = "spiffe://cluster.local/ns/default/sa/web"
	first, _ := crowd(t, r, identity, w.now().Add(time.Hour), 950)
	if _, err := r.Revoke(t.Context(), []string{first}, nil); err == nil || !strings.Contains(err.Error(), "revoke the identity "+identity) {
		t.Fatalf("950 renewals are revoked by one number: %v", err)
	}
	if _, err := r.Revoke(t.Context(), nil, []string{identity}); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(t.Context(), []string{identity}); err == nil || !strings.Contains(err.Error(), "restore it after") {
		t.Fatalf("950 certificates go into the lists: %v", err)
	}
	for range 3 {
		if out, err := r.Revoke(t.Context(), []string{r.mustLeaf("other").Serial}, nil); err != nil || len(out.Serials) != 1 {
			t.Fatalf("another one has no room: %+v, %v", out, err)
		}
	}
}
