package embedded_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"navarch.io/navarch/store/kv/embedded"
)

// disk is a disk whose free space the test sets.
type disk struct{ free atomic.Uint64 }

func (d *disk) config(dir string) embedded.Config {
	c := config(dir)
	c.Free = func(folder string) (uint64, error) {
		if !strings.HasPrefix(folder, "/") {
			return 0, errors.New(folder + " is no absolute path")
		}
		return d.free.Load(), nil
	}
	return c
}

// Before the disk is full etcd refuses writes, and continues to read and to delete. It writes again once there is
// somewhat more space, also after a restart of the process.
func TestStopsWritingBeforeTheDiskIsFull(t *testing.T) {
	d, dir := &disk{}, t.TempDir()
	d.free.Store(embedded.Least)
	etcd, err := embedded.Start(d.config(dir))
	if err != nil {
		t.Fatal(err)
	}
	put := func() error {
		_, err := etcd.Client().Put(t.Context(), "key", "value")
		return err
	}
	etcd.Look(t.Context())
	if err := put(); err != nil || etcd.Room() != "" {
		t.Fatalf("with %d bytes free: %v, %q", embedded.Least, err, etcd.Room())
	}
	for _, free := range []uint64{embedded.Least - 1, embedded.Enough - 1} {
		d.free.Store(free)
		etcd.Look(t.Context())
		why := "MiB free: etcd writes nothing until there are 96 MiB"
		if err := put(); !errors.Is(err, rpctypes.ErrNoSpace) || !strings.Contains(etcd.Room(), why) {
			t.Errorf("with %d bytes free: %v, %q", free, err, etcd.Room())
		}
	}
	if got, err := etcd.Client().Get(t.Context(), "key"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("read: %v, %v", got, err)
	}
	if _, err := etcd.Client().Delete(t.Context(), "key"); err != nil {
		t.Errorf("deleted: %v", err)
	}
	d.free.Store(embedded.Enough)
	etcd.Look(t.Context())
	if err := put(); err != nil || etcd.Room() != "" {
		t.Errorf("with %d bytes free: %v, %q", embedded.Enough, err, etcd.Room())
	}
	d.free.Store(0)
	etcd.Look(t.Context())
	stop(t, etcd)
	d.free.Store(embedded.Enough)
	if etcd, err = embedded.Start(d.config(dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, etcd) })
	runs(t, etcd)
	answers(t, put)
}

// runs has a server run until the test ends.
func runs(t *testing.T, etcd *embedded.Server) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- etcd.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// answers waits until etcd does.
func answers(t *testing.T, ask func() error) {
	t.Helper()
	err := ask()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = ask() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("etcd does not answer: %v", err)
	}
}

// A process whose disk is full at its start has a store that does not answer; etcd is started once there is space, with
// its previous content.
func TestStartsWithoutRoom(t *testing.T) {
	d, dir := &disk{}, t.TempDir()
	d.free.Store(embedded.Enough)
	etcd, err := embedded.Start(d.config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Client().Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	stop(t, etcd)
	d.free.Store(embedded.Least - 1)
	if etcd, err = embedded.Start(d.config(dir)); err != nil {
		t.Fatal(err)
	}
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		got, err := etcd.Client().Get(ctx, "key")
		if err == nil && len(got.Kvs) != 1 {
			t.Errorf("read: %v", got)
		}
		return err
	}
	if err := get(); err == nil || !strings.Contains(etcd.Room(), "etcd is not started") {
		t.Errorf("without room: %v, %q", err, etcd.Room())
	}
	stop(t, etcd) // before it was ever started
	if etcd, err = embedded.Start(d.config(dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, etcd) })
	runs(t, etcd)
	d.free.Store(embedded.Enough)
	answers(t, get)
	if etcd.Room() != "" {
		t.Errorf("with room: %q", etcd.Room())
	}
}
