package keyring_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
)

const crowdID = "spiffe://cluster.local/ns/default/sa/crowd"

// stored returns the size of an identity's journal, in bytes.
func (w *harness) stored(identity string) (bytes int) {
	w.t.Helper()
	for _, b := range w.blobs("certificates/") {
		for _, one := range strings.SplitAfter(string(b.Raw), "}") {
			if strings.Contains(one, `"`+identity+`"`) {
				bytes += len(one)
			}
		}
	}
	return bytes
}

// floods journals certificates of the crowd, as fast as requested, and returns when the last ends.
func (r *replica) floods(first, count int) (end time.Time) {
	r.t.Helper()
	return r.floodsFrom("", first, count)
}

// floodsFrom is floods, from one origin.
func (r *replica) floodsFrom(origin string, first, count int) (end time.Time) {
	r.t.Helper()
	end = r.w.now().Add(24 * time.Hour)
	s := r.State()
	var appending sync.WaitGroup
	for i := range count {
		appending.Go(func() {
			err := r.Append(r.t.Context(), keyring.Issue{Serial: fmt.Sprintf("%x", first+i), Identity: crowdID, Origin: origin, Epoch: s.Active.Epoch, Generation: s.Generation, NotAfter: end.Add(-time.Duration(i) * time.Second)})
			if err != nil {
				r.t.Error(err)
			}
		})
	}
	appending.Wait()
	return end
}

// An identity that requests certificates without end is never refused, and uses at most its part of etcd, through any
// replicas and restarts. Certificates of other identities are journalled one by one meanwhile.
// Promise: security-limits.md#certificates
func TestJournalOfAnIdentityIsBounded(t *testing.T) {
	const part = 10_000
	bounded := func(c *keyring.Config) { c.IdentityBytes = part }
	w := newHarness(t)
	r := w.replica(bounded)
	r.settle()
	r.floods(1, 30) // less than its part
	if got := strings.Count(string(w.blobs("certificates/")[0].Raw), crowdID); got == 0 || w.stored(crowdID) < 30*len(crowdID) {
		t.Fatalf("%d bytes of 30 certificates", w.stored(crowdID))
	}
	for i := range 3 {
		r.floods(1000*(i+1), 1000)
		if got := w.stored(crowdID); got > part+1000 {
			t.Fatalf("%d bytes of one identity, whose part is %d", got, part)
		}
	}
	r.stop()
	r = w.replica(bounded)
	r.settle()
	<-r.Seeded()
	r.floods(100_000, 200)
	if got := w.stored(crowdID); got > part+1000 {
		t.Fatalf("%d bytes of one identity after a restart", got)
	}
	before := w.stored("spiffe://cluster.local/ns/default/sa/web")
	r.mustLeaf("web")
	if got := w.stored("spiffe://cluster.local/ns/default/sa/web"); got <= before {
		t.Error("another identity's certificate is not journalled by its serial number")
	}
	w.later(26 * time.Hour)
	r.settle()
	if got := w.blobs("certificates/"); len(got) != 0 {
		t.Fatalf("%d blobs after their end", len(got))
	}
	r.floods(1_000_000, 10)
	if got := w.stored(crowdID); got < 10*len(crowdID) {
		t.Errorf("%d bytes of 10 certificates: what has ended still counts", got)
	}
}

// Refused certificates use up no part of the journal.
func TestRefusedEntriesUseNoQuota(t *testing.T) {
	w := newHarness(t)
	r := w.replica(func(c *keyring.Config) { c.IdentityBytes = 2000 })
	r.settle()
	stale := keyring.Issue{Identity: crowdID, Epoch: 7, Generation: r.State().Generation, NotAfter: w.now().Add(time.Hour)}
	for i := range 20 {
		stale.Serial = fmt.Sprintf("%x", 1000+i)
		if err := r.Append(t.Context(), stale); !errors.Is(err, keyring.ErrStale) {
			t.Fatal(err)
		}
	}
	r.floods(1, 3)
	if got := strings.Count(w.journalled(), `"s":`); got != 3 || strings.Contains(w.journalled(), `"many"`) {
		t.Errorf("%d certificates are journalled one by one: %s", got, w.journalled())
	}
}

// One Pod of an account has a bounded part of the account's journal. The certificates of the other Pods are journalled
// one by one, and revoked by serial number, also if they are counted after a restart. Certificates of the Pod beyond
// its part are revoked with the account.
// Promise: security-ca.md#revoking-by-serial-number, security-limits.md#certificates
func TestOneOriginLeavesTheJournalToItsAccount(t *testing.T) {
	const part = 100_000
	bounded := func(c *keyring.Config) { c.IdentityBytes = part }
	greedy, good := keyring.OriginOf("greedy/1"), keyring.OriginOf("good/2")
	w := newHarness(t)
	r := w.replica(bounded)
	r.settle()
	for i := range 3 {
		r.floodsFrom(greedy, 1000*(i+1), 1000)
		if got := w.stored(crowdID); got > part/4 {
			t.Fatalf("%d bytes of one Pod of an account whose part is %d", got, part)
		}
	}
	r.stop()
	r = w.replica(bounded)
	r.settle()
	<-r.Seeded()
	r.floodsFrom(greedy, 100_000, 200)
	if got := w.stored(crowdID); got > part/4 {
		t.Fatalf("%d bytes after a restart", got)
	}
	r.floodsFrom(good, 0xabc, 1)
	if out, err := r.Revoke(t.Context(), []string{"abc"}, nil); err != nil || len(out.Serials) != 1 || len(out.Unknown) != 0 {
		t.Errorf("another Pod's certificate: %+v, %v", out, err)
	}
	for _, serial := range []string{"3e8", "abcdef"} { // journalled; unknown
		if _, err := r.Revoke(t.Context(), []string{serial}, nil); err == nil || !strings.Contains(err.Error(), crowdID) {
			t.Errorf("serial %s: %v", serial, err)
		}
	}
	for i := range 40 { // as many of its Pods have no more than the account
		r.floodsFrom(keyring.OriginOf(fmt.Sprint(i)), 1_000_000*(i+1), 100)
	}
	if got := w.stored(crowdID); got > part+10_000 {
		t.Errorf("%d bytes of an account whose part is %d", got, part)
	}
	if _, err := r.Revoke(t.Context(), []string{"abc"}, nil); err == nil {
		t.Error("what renewed it may be among those of the account that are not journalled one by one")
	}
	out, err := r.Revoke(t.Context(), nil, []string{crowdID})
	if err != nil || len(out.Denied) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
}

// Certificates that are not journalled one by one are revoked with their identity, not by serial number. A rotation
// waits until they have ended, and their identity is not restored earlier.
// Promise: security-ca.md#revoking-by-serial-number, security-workloads.md#renewals-and-revocation
func TestRevocationOfWhatIsNotJournalledOneByOne(t *testing.T) {
	w := newHarness(t)
	r := w.replica(func(c *keyring.Config) { c.IdentityBytes = 2000 })
	r.settle()
	web := r.mustLeaf("web")
	r.floods(1, 100)
	w.later(time.Hour)
	end := r.floods(101, 400)
	for _, serial := range []string{"1", "1f4", "abcdef"} { // journalled, not journalled, unknown
		if _, err := r.Revoke(t.Context(), []string{serial}, nil); err == nil || !strings.Contains(err.Error(), crowdID) {
			t.Errorf("serial %s: %v", serial, err)
		}
	}
	if out, err := r.Revoke(t.Context(), []string{web.Serial}, nil); err != nil || len(out.Serials) != 1 {
		t.Errorf("another identity's: %+v, %v", out, err)
	}
	if err := r.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	waiting := false
	for _, h := range r.settle().Waiting {
		waiting = waiting || h.Many && h.Identity == crowdID && !h.NotAfter.Before(end.Truncate(time.Second))
	}
	if !waiting {
		t.Error("the rotation does not wait for it")
	}
	out, err := r.Revoke(t.Context(), nil, []string{crowdID})
	if err != nil || len(out.Denied) != 1 || out.Denied[0].Until.Before(end.Truncate(time.Second)) {
		t.Fatalf("%+v, %v; the last ends at %v", out, err, end)
	}
	if err := r.Restore(t.Context(), []string{crowdID}); err == nil || !strings.Contains(err.Error(), "one by one") {
		t.Errorf("restored: %v", err)
	}
	w.later(26 * time.Hour)
	if got := statuses(r.settle()); got[2] != keyring.Active {
		t.Errorf("epochs are %v when it has ended", got)
	}
	if err := r.Restore(t.Context(), []string{crowdID}); err != nil {
		t.Error(err)
	}
	wantStatuses(t, r.settle(), keyring.Retired, keyring.Active)
}
