package keyring_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
)

func statuses(r *keyring.Report) map[uint64]keyring.Status {
	out := map[uint64]keyring.Status{}
	for _, e := range r.Epochs {
		out[e.Number] = e.Status
	}
	return out
}

func wantStatuses(t *testing.T, r *keyring.Report, want ...keyring.Status) {
	t.Helper()
	got := statuses(r)
	for i, s := range want {
		if got[uint64(i)+1] != s {
			t.Fatalf("epochs are %v, want %v (waiting: %v)", got, want, r.Waiting)
		}
	}
}

func fingerprints(bundle []*x509.Certificate) []string {
	var out []string
	for _, c := range bundle {
		sum := sha256.Sum256(c.Raw)
		out = append(out, hex.EncodeToString(sum[:]))
	}
	return out
}

// rotation has two replicas during a rotation of the root, and the certificates and bundles of that time.
type rotation struct {
	*harness
	*testing.T
	one, other *replica
	leaves     []*issue.Issued
	bundles    [][]*x509.Certificate
}

// pairs checks that every bundle trusts every leaf.
func (r *rotation) pairs(when string) {
	r.Helper()
	for _, b := range r.bundles {
		for _, l := range r.leaves {
			if err := trusts(b, l, r.now()); err != nil {
				r.Fatalf("%s: %v", when, err)
			}
		}
	}
}

// A complete rotation: the new root is published, every holder gets it in one of the possible ways, the signer
// switches, and the old root is removed when its last leaf has ended. At each step every leaf in use is accepted with
// every bundle in use.
func TestRotation(t *testing.T) {
	w := newHarness(t)
	r := &rotation{harness: w, T: t, one: w.replica(), other: w.replica()}
	r.one.settle()
	r.other.settle()
	r.leaves = []*issue.Issued{r.one.mustLeaf("renews", pod("renews-1")), r.one.mustLeaf("reports"), r.one.mustLeaf("renews-mtls"), r.one.mustLeaf("gone")}
	r.bundles = [][]*x509.Certificate{r.one.State().Bundle}
	r.publish()
	r.renew()
	until := r.change()
	r.retire(until)
}

// publish begins: the new root is published, and nothing is signed by it.
func (r *rotation) publish() {
	t, w, one, other := r.T, r.harness, r.one, r.other
	if err := one.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	other.settle()
	if len(other.State().Bundle) != 2 || other.State().Active.Epoch != 1 || len(other.State().CRLs) != 2 {
		t.Fatalf("the new root is not published: %v", other.State())
	}
	if err := other.Rotate(t.Context(), false); !errors.Is(err, keyring.ErrRotating) {
		t.Fatalf("a second rotation: %v", err)
	}
	err := other.Append(t.Context(), keyring.Issue{Serial: "76", Identity: "spiffe://cluster.local/ns/a/sa/b", Epoch: 1, Generation: 1, NotAfter: w.now().Add(time.Hour)})
	if !errors.Is(err, keyring.ErrStale) {
		t.Fatalf("a certificate that came with the old bundle was journalled: %v", err)
	}
	report := one.settle()
	wantStatuses(t, report, keyring.Active, keyring.Prepared)
	if len(report.Waiting) != 4 || report.Rotating != 2 {
		t.Fatalf("waiting: %+v", report)
	}
	r.pairs("published")
}

// renew makes holders adopt the new root: one renews with its token, one over mTLS, one reports it; one has not done so
// yet.
func (r *rotation) renew() {
	t, one, other := r.T, r.one, r.other
	r.leaves = append(r.leaves, other.mustLeaf("renews", pod("renews-1")),
		other.mustLeaf("renews-mtls", func(i *keyring.Issue) { i.Previous = r.leaves[2].Serial }))
	if err := other.Held(t.Context(), r.leaves[1].Serial, "", "", fingerprints(r.bundles[0]), one.w.now().Add(time.Hour)); err != nil { // the old bundle: counts for nothing
		t.Fatal(err)
	}
	if got := one.settle().Waiting; len(got) != 2 {
		t.Fatalf("waiting: %+v", got)
	}
	if err := other.Held(t.Context(), r.leaves[1].Serial, "", "", append(fingerprints(other.State().Bundle), "more"), one.w.now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	report := one.settle()
	if len(report.Waiting) != 1 || report.Waiting[0].Serial != r.leaves[3].Serial || report.Waiting[0].Identity != "spiffe://cluster.local/ns/default/sa/gone" {
		t.Fatalf("waiting: %+v", report.Waiting)
	}
	wantStatuses(t, report, keyring.Active, keyring.Prepared)
	r.bundles[0] = one.State().Bundle // all that live have it now
}

// change is the switch: the last holder never comes, and its leaf ends. It returns until when the old epoch is needed.
func (r *rotation) change() (until time.Time) {
	t, w, one, other := r.T, r.harness, r.one, r.other
	stale := other.State()
	w.later(24*time.Hour + time.Minute)
	r.leaves = []*issue.Issued{other.mustLeaf("renews", pod("renews-1"))}
	one.settle()
	report := one.settle()
	wantStatuses(t, report, keyring.Retiring, keyring.Active)
	r.pairs("switched")
	if len(one.State().Bundle) != 2 {
		t.Fatal("the old root went with the switch")
	}
	// A replica that has not heard of the switch cannot issue under the old epoch.
	err := other.Append(t.Context(), keyring.Issue{Serial: "77", Identity: "spiffe://cluster.local/ns/a/sa/b", Epoch: stale.Active.Epoch,
		Generation: stale.Generation, NotAfter: w.now().Add(time.Hour)})
	if !errors.Is(err, keyring.ErrStale) {
		t.Fatalf("the old signer's certificate was journalled: %v", err)
	}
	r.leaves = append(r.leaves, other.mustLeaf("renews", pod("renews-1")))
	if r.leaves[1].Epoch != 2 {
		t.Fatalf("signed by epoch %d", r.leaves[1].Epoch)
	}
	r.pairs("signed again")
	if err := one.Abort(t.Context()); !errors.Is(err, keyring.ErrNoRotation) {
		t.Fatalf("abort after the switch: %v", err)
	}
	if until = report.Until[1]; !until.Equal(r.leaves[0].Leaf.NotAfter) {
		t.Fatalf("epoch 1 until %v, want %v", until, r.leaves[0].Leaf.NotAfter)
	}
	return until
}

// retire waits for the end of the old epoch: its root and its key go.
func (r *rotation) retire(until time.Time) {
	t, w, one, other := r.T, r.harness, r.one, r.other
	w.later(until.Sub(w.now()) - time.Second)
	one.settle()
	wantStatuses(t, one.settle(), keyring.Retiring, keyring.Active)
	w.later(20 * time.Minute)
	one.settle()
	wantStatuses(t, one.settle(), keyring.Retired, keyring.Active)
	other.settle()
	if s := other.State(); len(s.Bundle) != 1 || trusts(s.Bundle, r.leaves[1], r.leaves[1].Leaf.NotBefore) != nil {
		t.Fatalf("%v", s)
	}
	if n := len(w.blobs("keys/sealed/")); n != 1 {
		t.Fatalf("%d keys left", n)
	}
}

func TestAbortAndForce(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	leaf := r.mustLeaf("web")
	if err := r.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := r.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, r.settle(), keyring.Active, keyring.Retired)
	if len(r.State().Bundle) != 1 || r.State().Active.Epoch != 1 {
		t.Fatalf("%v", r.State())
	}
	if err := r.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	report := r.settle()
	wantStatuses(t, report, keyring.Active, keyring.Retired, keyring.Prepared)
	if len(report.Waiting) != 1 || report.Waiting[0].Serial != leaf.Serial {
		t.Fatalf("waiting: %v", report.Waiting)
	}
	if err := r.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, r.settle(), keyring.Retiring, keyring.Retired, keyring.Active)
	if err := trusts(r.State().Bundle, leaf, w.now()); err != nil {
		t.Fatalf("a leaf in use: %v", err)
	}
}

// A root that grows old gets a successor by itself.
func TestAgeingRootIsRotated(t *testing.T) {
	w := newHarness(t)
	r := w.replica(func(c *keyring.Config) { c.RootTTL = 100 * time.Hour })
	r.settle()
	w.later(79 * time.Hour)
	r.settle()
	wantStatuses(t, r.settle(), keyring.Active)
	if n := len(r.State().Epochs); n != 1 {
		t.Fatalf("%d epochs at 79 %% of the root's life", n)
	}
	w.later(2 * time.Hour)
	r.settle() // prepares
	r.settle() // no leaf: switches
	wantStatuses(t, r.settle(), keyring.Retired, keyring.Active)
}

// Replicas follow etcd by themselves, not only on a clock tick or a request.
func TestReplicasFollow(t *testing.T) {
	w := newHarness(t)
	slow := func(c *keyring.Config) { c.Every = time.Hour }
	one, other := w.replica(slow), w.replica(slow)
	one.settle()
	other.settle()
	one.mustLeaf("web")
	if err := one.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); other.State().Generation != 2; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%v", other.State())
		}
	}
}

// A rotation under load: replicas issue all the time, and every certificate is accepted with every bundle of its time
// or later; none was journalled after its epoch's gate.
func TestRotationUnderLoad(t *testing.T) {
	w := newHarness(t)
	one, other := w.replica(), w.replica()
	one.settle()
	other.settle()
	root := one.State().Bundle
	ctx, cancel := context.WithCancel(t.Context())
	var issuing sync.WaitGroup
	var issued, early atomic.Int64
	for i := range 6 {
		r := []*replica{one, other}[i%2]
		issuing.Go(func() {
			for ctx.Err() == nil {
				out, err := r.leaf("web", pod(fmt.Sprint(i)))
				switch {
				case errors.Is(err, keyring.ErrStale):
					continue
				case err != nil:
					t.Error(err)
					return
				case trusts(r.State().Bundle, out, w.now()) != nil:
					t.Errorf("epoch %d is not in the bundle: %v", out.Epoch, r.State())
				case trusts(root, out, w.now()) == nil:
					early.Add(1)
				}
				issued.Add(1)
			}
		})
	}
	for end := time.Now().Add(time.Minute); issued.Load() < 20 && time.Now().Before(end); runtime.Gosched() {
	}
	if err := one.Rotate(t.Context(), false); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(time.Minute); one.State().Active.Epoch != 2 || issued.Load() < 200; {
		if one.settle(); time.Now().After(end) {
			t.Errorf("no switch: %+v", one.settle())
			break
		}
	}
	cancel()
	issuing.Wait()
	report := one.settle()
	if report.Until[1].IsZero() || early.Load() == 0 {
		t.Fatalf("%d issued under the old root: %+v", early.Load(), report)
	}
}
