package kv_test

import (
	"testing"
	"time"

	"navarch.io/navarch/store/kv/kvtest"
)

// The lease exists from the first blob on. Releasing it deletes all blobs, and the next blob has another lease.
func TestLeased(t *testing.T) {
	store, ctx := kvtest.Start(t).Connect(), t.Context()
	folders, err := store.Follow(ctx, "refusals/")
	if err != nil {
		t.Fatal(err)
	}
	has := func(want int) {
		t.Helper()
		for f := range folders {
			if len(f.Blobs) == want {
				return
			}
		}
	}
	l := store.Leased(time.Minute)
	if l.Lost() != nil || l.Delete(ctx, "refusals/a") != nil || l.Release(ctx) != nil {
		t.Error("nothing was written, and there is a lease")
	}
	for _, path := range []string{"refusals/a", "refusals/b"} {
		if err := l.Put(ctx, path, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	has(2)
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("a lease that was not lost is dropped: nobody would take away what is there")
			}
		}()
		l.Drop()
	}()
	if err := l.Delete(ctx, "refusals/a"); err != nil {
		t.Fatal(err)
	}
	has(1)
	lost := l.Lost()
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	has(0)
	<-lost
	if err := l.Put(ctx, "refusals/c", []byte("x")); err != nil {
		t.Fatal(err)
	}
	has(1)
	l.End()
	has(0)
}
