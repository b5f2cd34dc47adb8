package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"navarch.io/navarch/store/kv/embedded"
)

// As it runs in production: no tuning.
func config(dir string) embedded.Config {
	return embedded.Config{Mesh: "test", Dir: dir, Logger: slog.New(slog.DiscardHandler)}
}

func start(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	etcd, err := embedded.Start(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	return etcd
}

func stop(t *testing.T, etcd *embedded.Server) {
	t.Helper()
	if err := etcd.Close(); err != nil {
		t.Error(err)
	}
}

func TestKeepsDataAndClosesDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	etcd := start(t, dir)
	put, err := etcd.Client().Put(t.Context(), "key", "value")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("data directory: %v, %v", info.Mode(), err)
	}
	for _, endpoint := range etcd.Endpoints() {
		if !strings.HasPrefix(endpoint, "unix://") {
			t.Fatalf("listens on %s", endpoint)
		}
	}
	stop(t, etcd)
	etcd = start(t, dir)
	defer stop(t, etcd)
	got, err := etcd.Client().Get(t.Context(), "key")
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].ModRevision != put.Header.Revision || got.Header.ClusterId != put.Header.ClusterId {
		t.Fatalf("after a restart: %+v, %v", got, err)
	}
}

// The only member leads without waiting for others, whatever etcd's default: a start needs its election timeout, at
// most twice.
func TestElectsItselfAtOnce(t *testing.T) {
	c, election := config(t.TempDir()), uint(0)
	c.Tune = func(etcd *embed.Config) { election = etcd.ElectionMs }
	etcd, err := embedded.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, etcd)
	if election == 0 || election > 100 {
		t.Errorf("the election timeout is %d ms", election)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	defer stop(t, start(t, dir))
	_, err := embedded.Start(config(dir))
	if !errors.Is(err, embedded.ErrLocked) || !strings.Contains(err.Error(), dir+" is served by process ") || strings.Contains(err.Error(), "unknown") {
		t.Fatalf("a second server: %v", err)
	}
}

// A socket that a killed process left is no obstacle; the path may be longer than a socket's.
func TestAfterKillAndInLongPath(t *testing.T) {
	stop(t, start(t, filepath.Join(t.TempDir(), strings.Repeat("x", 120))))
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
	stop(t, start(t, short))
}

func TestBadDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file} {
		if _, err := embedded.Start(config(dir)); err == nil || !strings.Contains(err.Error(), "data directory") {
			t.Errorf("directory %q: %v", dir, err)
		}
	}
}

// A mesh that has no name of its own in etcd is refused, and the directory is free again.
func TestBadMesh(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Mesh = "a/b"
	if _, err := embedded.Start(cfg); err == nil || !strings.Contains(err.Error(), `"a/b"`) {
		t.Error(err)
	}
	stop(t, start(t, cfg.Dir))
}

// Run ends with its context, and returns an error if the server stops.
func TestRun(t *testing.T) {
	etcd := start(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := etcd.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	died := make(chan error, 1)
	go func() { died <- etcd.Run(t.Context()) }()
	stop(t, etcd)
	if err := <-died; err == nil || !strings.Contains(err.Error(), "embedded etcd") {
		t.Error(err)
	}
}
