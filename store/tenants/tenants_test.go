package tenants

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// A namespace is a tenant of its own, unless the leader's labels join it with others; unreadable labels leave the
// previous ones.
func TestTenants(t *testing.T) {
	known := New()
	alike := func(want bool, what string) {
		t.Helper()
		if (known.Of("shop") == known.Of("pay")) != want || known.Of("shop") == known.Of("other") {
			t.Errorf("%s: shop is %q, pay %q, other %q", what, known.Of("shop"), known.Of("pay"), known.Of("other"))
		}
	}
	alike(false, "nothing is known")
	take := func(raw string) error {
		return known.take(kv.Folder{Blobs: []kv.Blob{{Path: "tenants/else", Raw: []byte("{")}, {Path: tenantsPath, Raw: []byte(raw)}}})
	}
	_, listed, changed := known.stored()
	if err := take(`{"pay":"t","shop":"t"}`); err != nil || listed {
		t.Error(err, listed)
	}
	<-changed
	alike(true, "one label")
	if known.Of("shop") == known.Of("t") {
		t.Error("a namespace has the name of a label")
	}
	if take(`{"pay":`) == nil {
		t.Error("half a list is read")
	}
	alike(true, "unreadable")
	if raw, listed, _ := known.stored(); string(raw) != `{"pay":` || !listed {
		t.Errorf("a leader would not write it again: %q", raw)
	}
	if err := known.take(kv.Folder{}); err != nil {
		t.Error(err)
	}
	alike(false, "gone")
}

// labels are the labels that an ingester has read.
type labels struct {
	mu      sync.Mutex
	now     map[string]string
	changed chan struct{}
}

func (l *labels) Tenants() (map[string]string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

func (l *labels) set(now map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.now, l.changed = now, make(chan struct{})
}

// Labels above the limit are logged once, and again only after they have changed.
func TestTooManyLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := map[string]string{"shop": strings.Repeat("t", kv.MaxRecordBytes)}
		known, leader := &labels{now: large, changed: make(chan struct{})}, New()
		if err := leader.take(kv.Folder{}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		go leader.Lead(ctx, nil, kv.Epoch{}, known, slog.New(slog.NewTextHandler(&out, nil)))
		for n := range 2 {
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := strings.Count(out.String(), "more than the limit"); got != n+1 {
				t.Errorf("after %d changes: logged %d times", n, got)
			}
			known.set(large)
		}
		cancel()
		synctest.Wait()
	})
}

// The labels of the leader's ingester reach all replicas through etcd, and are written again if another writer removes
// them. A process that no longer leads writes nothing, and returns.
func TestLeaderWritesWhatReplicasRead(t *testing.T) {
	etcd := kvtest.Start(t)
	quiet := slog.New(slog.DiscardHandler)
	leader, replica := New(), New()
	running, stop := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	t.Cleanup(func() { stop(); loops.Wait() })
	for _, one := range []*Tenants{leader, replica} {
		store := etcd.Connect()
		loops.Go(func() {
			if err := one.Follow(running, store, quiet); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	known := &labels{changed: make(chan struct{})}
	ended := make(chan struct{})
	epoch := etcd.Elect("leader")
	loops.Go(func() { leader.Lead(running, etcd.Store, epoch, known, quiet); close(ended) })
	reads := func(what string, alike bool) {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			_, _, changed := replica.stored()
			if (replica.Of("shop") == replica.Of("pay")) == alike {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("%s: shop is %q, pay %q", what, replica.Of("shop"), replica.Of("pay"))
			}
		}
	}
	reads("nothing is known", false)
	known.set(map[string]string{"shop": "t", "pay": "t"})
	reads("one label", true)
	removed, err := etcd.Store.ChangeFenced(t.Context(), epoch, kv.BlobChange{Delete: []string{tenantsPath}})
	if err != nil {
		t.Fatal(err)
	}
	folders, err := etcd.Store.Follow(running, tenantsFolder)
	if err != nil {
		t.Fatal(err)
	}
	for again := false; !again; {
		select {
		case folder := <-folders:
			again = len(folder.Blobs) == 1 && folder.Blobs[0].Revision > removed
		case <-time.After(time.Minute):
			t.Fatal("somebody removed it, and it was not written again")
		}
	}
	reads("it was written again", true)
	known.set(map[string]string{"shop": "t"})
	reads("pay has no label any more", false)
	etcd.Depose(epoch)
	known.set(map[string]string{"shop": "t", "pay": "t"})
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("one that was deposed goes on")
	}
	if replica.Of("shop") == replica.Of("pay") {
		t.Error("one that was deposed wrote")
	}
}
