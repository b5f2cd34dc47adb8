//go:build !race

package kv_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

// As it runs in production: no tuning.
func embedded(t *testing.T, cfg kv.EmbedConfig) *kv.Store {
	t.Helper()
	cfg.Mesh, cfg.Logger = kvtest.Mesh, slog.New(slog.DiscardHandler)
	s, err := kv.Embed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestEmbedKeepsDataAndClosesDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := kv.EmbedConfig{Mesh: kvtest.Mesh, Dir: dir, Logger: slog.New(slog.DiscardHandler)}
	s, err := kv.Embed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	revision := commit(t, s, kv.Batch{Epoch: epoch(t, s, "a"), Puts: services(t, 3, 80)})
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("data directory: %v, %v", info.Mode(), err)
	}
	for _, endpoint := range s.Endpoints() {
		if !strings.HasPrefix(endpoint, "unix://") {
			t.Fatalf("listens on %s", endpoint)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = embedded(t, kv.EmbedConfig{Dir: dir})
	if state := load(t, s, 0); state.Complete != revision || len(state.Values) != 3 {
		t.Fatalf("after a restart: %+v", state)
	}
}

func TestEmbedLock(t *testing.T) {
	dir := t.TempDir()
	embedded(t, kv.EmbedConfig{Dir: dir})
	_, err := kv.Embed(kv.EmbedConfig{Mesh: kvtest.Mesh, Dir: dir})
	if !errors.Is(err, kv.ErrLocked) || !strings.Contains(err.Error(), dir+" is served by process ") || strings.Contains(err.Error(), "unknown") {
		t.Fatalf("a second server: %v", err)
	}
}

// A socket that a killed process left is no obstacle; the path may be longer than a socket's.
func TestEmbedAfterKillAndInLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	embedded(t, kv.EmbedConfig{Dir: dir})
	short, err := os.MkdirTemp("", "kv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(short, "etcd.sock")})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	embedded(t, kv.EmbedConfig{Dir: short})
}

func TestEmbedBadDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file} {
		if _, err := kv.Embed(kv.EmbedConfig{Mesh: kvtest.Mesh, Dir: dir}); err == nil || !strings.Contains(err.Error(), "data directory") {
			t.Errorf("directory %q: %v", dir, err)
		}
	}
}

// churn rewrites a few records until n bytes were written.
func churn(t *testing.T, s *kv.Store, e kv.Epoch, n int) error {
	t.Helper()
	const size = 200 << 10
	for i := 0; i < n; i += 4 * size {
		var puts []model.Record
		for _, name := range []string{"a", "b", "c", "d"} {
			puts = append(puts, service(t, name, uint32(i/size+1), size))
		}
		if _, err := s.Commit(within(t), kv.Batch{Epoch: e, Puts: puts}); err != nil {
			return err
		}
	}
	return nil
}

// Under churn the database holds what is current: history is compacted, and the file gives its room back.
func TestEmbedBoundedUnderChurn(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	const round = 48 << 20
	for i := range 3 {
		if err := churn(t, s.Store, e, round); err != nil {
			t.Fatal(err)
		}
		grown, err := s.Size(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if grown.File < round/2 {
			t.Fatalf("%d bytes after a churn of %d: the test measures nothing", grown.File, round)
		}
		if err := s.Compact(within(t), stat(t, s.Store).Revision); err != nil {
			t.Fatal(err)
		}
		ctx, small := within(t), grown // what is in use is counted again every 100 ms, so that one round may see too much
		for small.File > 4<<20 {
			if err := s.Maintain(ctx); err != nil {
				t.Fatalf("round %d: %d bytes for 0.8 MB of records: %v", i, small.File, err)
			}
			if small, err = s.Size(ctx); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
	}
}

// An etcd that history filled stops writing; maintenance gets it going again without losing anything.
func TestEmbedRecoversFromFull(t *testing.T) {
	dir := t.TempDir()
	s := embedded(t, kv.EmbedConfig{Dir: dir, Quota: 16 << 20})
	e := epoch(t, s, "a")
	if err := churn(t, s, e, 64<<20); err == nil || !strings.Contains(err.Error(), "database space exceeded") {
		t.Fatalf("a database over its quota: %v", err)
	}
	if size, err := s.Size(within(t)); err != nil || !size.Full {
		t.Fatalf("size %+v, %v", size, err)
	}
	if err := s.Maintain(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := churn(t, s, e, 4<<20); err != nil {
		t.Fatalf("after maintenance: %v", err)
	}
	if state := load(t, s, 0); len(state.Values) != 4 || !state.Head.Complete {
		t.Fatalf("%d records, head %+v", len(state.Values), state.Head)
	}
}

// Run ends with its context, and says so when the server dies under it.
func TestRun(t *testing.T) {
	s := kvtest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := s.Connect().Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	died := make(chan error, 1)
	store := s.Store
	go func() { died <- store.Run(within(t)) }()
	s.Stop()
	select {
	case err := <-died:
		if err == nil || !strings.Contains(err.Error(), "embedded etcd") {
			t.Fatal(err)
		}
	case <-within(t).Done():
		t.Fatal("Run did not notice that the server stopped")
	}
}
