//go:build !race

package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// fill has certificates of many identities journalled, with as much in each entry as fits, until enough is there or
// etcd refuses; it returns why.
func (r *replica) fill(until func() bool) error {
	r.t.Helper()
	return r.fillAs(func(i int) string { return fmt.Sprintf("spiffe://cluster.local/ns/fill/sa/%d", i) }, until)
}

// fillAs is fill, of the identities that are made of numbers from 0 to 99.
func (r *replica) fillAs(identity func(int) string, until func() bool) error {
	r.t.Helper()
	s, end := r.State(), r.w.now().Add(time.Hour)
	for round := 0; !until(); round++ {
		var mu sync.Mutex
		var failed error
		var appending sync.WaitGroup
		for i := range 100 {
			appending.Go(func() {
				err := r.Append(r.t.Context(), keyring.Issue{Serial: fmt.Sprintf("%x", 1+round*100+i), Identity: identity(i),
					Epoch: s.Active.Epoch, Generation: s.Generation, NotAfter: end, Peer: strings.Repeat("x", 1500)})
				if err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			})
		}
		appending.Wait()
		if failed != nil {
			return failed
		}
	}
	return nil
}

func (w *harness) size() kv.Size {
	w.t.Helper()
	size, err := w.Size(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return size
}

// maintained repeats the maintenance until etcd's files are small: the size in use is computed every 100 ms.
func (w *harness) maintained(small int64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for size := w.size(); size.Full || size.File > small; size = w.size() {
		if err := w.Maintain(ctx); err != nil {
			w.t.Fatalf("%+v: %v", size, err)
		}
	}
}

// An etcd that is really full: certificates that cannot be journalled are refused at once with that error, and the
// keyring stays in force. Ended entries are pruned nevertheless, which frees space, and issuing continues.
func TestFullStore(t *testing.T) {
	const quota = 16 << 20
	w := newHarness(t, kvtest.Quota(quota))
	r := w.replica()
	r.settle()
	err := r.fill(func() bool { return false })
	if !errors.Is(err, kv.ErrFull) {
		t.Fatalf("a full etcd: %.500v", err)
	}
	if size := w.size(); !size.Full || !size.Filling() || size.Quota != quota {
		t.Errorf("%+v", size)
	}
	if _, err := r.leaf("web"); !errors.Is(err, kv.ErrFull) {
		t.Errorf("a certificate: %v", err)
	}
	if _, err := r.Revoke(t.Context(), nil, []string{crowdID}); !errors.Is(err, kv.ErrFull) {
		t.Errorf("a revocation: %v", err)
	}
	if s := r.State(); s.Active == nil || s.Sealed != nil {
		t.Errorf("%v", s)
	}
	w.later(2 * time.Hour)
	r.settle()
	if left := w.blobs("certificates/"); len(left) != 0 {
		t.Fatalf("%d blobs are not pruned while etcd is full", len(left))
	}
	w.maintained(quota / 2)
	r.mustLeaf("web")
	if _, err := r.Revoke(t.Context(), nil, []string{crowdID}); err != nil {
		t.Error(err)
	}
}

// One identity does not fill etcd, though it has certificates issued that have three times as many bytes as there is
// room for: it is refused none, and others are journalled one by one beside it.
// Promise: security-limits.md#certificates
func TestOneIdentityDoesNotFillTheStore(t *testing.T) {
	const quota, each, part = 16 << 20, 1500, 2 << 20
	w := newHarness(t, kvtest.Quota(quota))
	r := w.replica(func(c *keyring.Config) { c.IdentityBytes = part })
	r.settle()
	issued := 0
	if err := r.fillAs(func(int) string { return crowdID }, func() bool { issued += 100; return issued > 3*quota/each }); err != nil {
		t.Fatalf("after %d certificates: %.500v", issued, err)
	}
	if size := w.size(); size.Filling() || size.File < part/2 {
		t.Errorf("%+v", size)
	}
	r.mustLeaf("web")
	if w.stored("spiffe://cluster.local/ns/default/sa/web") == 0 {
		t.Error("another identity's certificate is not journalled by its serial number")
	}
}

// Pruning frees space before etcd is full: from 80 % of the quota on, a file is compacted if that frees a tenth of it.
func TestPruningGivesRoomBack(t *testing.T) {
	const quota = 32 << 20
	w := newHarness(t, kvtest.Quota(quota))
	r := w.replica()
	r.settle()
	if err := r.fill(func() bool { return w.size().Filling() }); err != nil {
		t.Fatal(err)
	}
	filled := w.size()
	if filled.Full || filled.File < quota*8/10 {
		t.Fatalf("%+v: the test measures nothing", filled)
	}
	w.later(2 * time.Hour)
	r.settle()
	stat, err := w.Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Compact(t.Context(), stat.Revision); err != nil { // an embedded etcd does that by itself after 5 minutes
		t.Fatal(err)
	}
	w.maintained(quota / 4)
	if size := w.size(); size.Filling() {
		t.Errorf("%+v after %+v", size, filled)
	}
}
