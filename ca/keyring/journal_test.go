package keyring_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// Many entries are few transactions; all of them are durable when Append returns; they stay until they end.
func TestJournalCommitsInGroups(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	const n = 2000
	end := w.now().Add(24 * time.Hour)
	var appending sync.WaitGroup
	for i := range n {
		appending.Go(func() {
			err := r.Append(t.Context(), keyring.Issue{Serial: fmt.Sprintf("%x", i+1), Identity: "spiffe://cluster.local/ns/a/sa/b", Epoch: 1, Generation: 1, NotAfter: end})
			if err != nil {
				t.Error(err)
			}
		})
	}
	appending.Wait()
	blobs, all := w.blobs("certificates/"), 0
	for _, b := range blobs {
		all += strings.Count(string(b.Raw), `"s":`)
	}
	if all != n || len(blobs) > n/10 {
		t.Fatalf("%d entries in %d transactions, want %d in few", all, len(blobs), n)
	}
	w.later(23 * time.Hour)
	r.settle()
	if left := w.blobs("certificates/"); len(left) != len(blobs) {
		t.Fatalf("%d of %d left before their end", len(left), len(blobs))
	}
	w.later(2 * time.Hour)
	r.settle()
	if left := w.blobs("certificates/"); len(left) != 0 {
		t.Fatalf("%d left after their end", len(left))
	}
}

// An entry that cannot be is its caller's trouble alone; with etcd away nothing is promised.
func TestJournalRefuses(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	long := strings.Repeat("x", 4000)
	if err := r.Append(t.Context(), keyring.Issue{Serial: "1", Epoch: 1, Generation: 1, Peer: long}); err == nil {
		t.Error("an entry without an end, and too long, was taken")
	}
	if err := r.Append(t.Context(), keyring.Issue{Serial: "1", Epoch: 1, Generation: 2, NotAfter: w.now()}); !errors.Is(err, keyring.ErrStale) {
		t.Errorf("another bundle: %v", err)
	}
	r.mustLeaf("web")
	w.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.Append(ctx, keyring.Issue{Serial: "1", Epoch: 1, Generation: 1, NotAfter: w.now()}); err == nil {
		t.Error("a certificate was promised that is not durable")
	}
	w.Restart(w.Dir())
	r.mustLeaf("web")
}

// An agent that reports its bundle repeatedly uses space in etcd once for each bundle.
// Promise: security-limits.md#certificates
func TestReportsAreJournalledOnce(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	leaf := r.mustLeaf("web")
	journalled := func() (n int) {
		for _, b := range w.blobs("certificates/") {
			n += strings.Count(string(b.Raw), `"rep":true`)
		}
		return n
	}
	says := func() {
		roots := fingerprints(r.State().Bundle)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { // each time with a root that is made up
				has := append(slices.Clone(roots), rand.Text())
				if err := r.Held(t.Context(), leaf.Serial, "spiffe://cluster.local/ns/default/sa/web", "", has, leaf.Leaf.NotAfter); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	says()
	says()
	if n := journalled(); n != 1 {
		t.Fatalf("%d entries for one report", n)
	}
	if err := r.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	says()
	if n := journalled(); n != 2 {
		t.Errorf("%d entries for reports of two bundles", n)
	}
}

// Stats contains the figures that operators monitor.
func TestStats(t *testing.T) {
	w := newHarness(t)
	r := w.replica()
	r.settle()
	r.mustLeaf("web")
	changed := r.Changed()
	if err := r.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("the state changed, and nobody was told")
	}
	r.settle()
	s, st := r.State(), r.Stats()
	if st.Sealed || st.Alarm || st.Generation != 2 || st.Epochs[keyring.Active] != 1 || st.Epochs[keyring.Prepared] != 1 || st.Epochs[keyring.Retired] != 0 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
	if !st.RootEnd.Equal(s.Active.Certificate.NotAfter) || !st.ChainEnd.Equal(s.Active.End()) {
		t.Errorf("%+v", st)
	}
	if st.Lag != 0 || st.Queued != 0 {
		t.Errorf("nothing is written: %+v", st)
	}
	w.Stop() // etcd: further appends wait
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil { // one may be refused at once: that the connection is gone
			_ = r.Append(ctx, keyring.Issue{Serial: "1", Epoch: 1, Generation: 2, NotAfter: w.now().Add(time.Hour)})
		}
	}()
	for end := time.Now().Add(time.Minute); r.Stats().Lag == 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the journal does not lag, and etcd is away")
		}
	}
	cancel()
	<-done
	w.Restart(w.Dir())
}
