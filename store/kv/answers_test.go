package kv

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// Calls that etcd does not answer fail with an error that names its addresses and why it was not reached, be they
// reads, transactions or leases.
func TestErrorsNameEtcd(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Mesh: "default", Endpoints: []string{at}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for name, call := range map[string]func(context.Context) error{
		"read":        func(ctx context.Context) error { _, err := s.Stat(ctx); return err },
		"lease":       func(ctx context.Context) error { _, err := s.Lease(ctx, time.Minute); return err },
		"transaction": func(ctx context.Context) error { _, err := s.client.Txn(ctx).If().Then().Else().Commit(); return err },
		"write":       func(ctx context.Context) error { _, err := s.client.Put(ctx, "k", "v"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := call(ctx)
		cancel()
		if text := err.Error(); !strings.Contains(text, "etcd at "+at+" does not answer") || !strings.Contains(text, "connection refused") || !isAway(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.client.KV.(namedKV).named(errors.New("no")); err.Error() != "no" {
		t.Errorf("what etcd answers became %v", err)
	}
}
