package embedded

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
)

// The operator sees etcd's messages about real trouble, each once in a while, and no messages of its orderly end.
func TestEtcdLogIsAnOperators(t *testing.T) {
	var out bytes.Buffer
	var stopping atomic.Bool
	now := time.Unix(1e6, 0)
	log := zapTo(slog.New(slog.NewTextHandler(&out, nil)), &stopping)
	log.Core().(slogCore).seen.now = func() time.Time { return now }
	said := func() string { defer out.Reset(); return out.String() }

	log.Warn("simple token is not cryptographically signed")
	log.Warn("Running http and grpc server on single port. This is not recommended for production.")
	log.Warn("apply request took too long", zap.Duration("took", time.Second))
	log.Info("anything")
	log.Error("failed to update storage version", zap.Error(errors.New("cannot detect storage schema version: missing term information")))
	if got := said(); got != "" {
		t.Errorf("not an operator's: %s", got)
	}
	for _, trouble := range []string{"slow fdatasync", "leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk",
		"snap file is corrupt", "found different hash values from remote peer", "serving /health false; no leader"} {
		log.With(zap.String("x", "y")).Warn(trouble)
		if got := said(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, trouble) || !strings.Contains(got, "from=etcd x=y") {
			t.Errorf("%s: said %q", trouble, got)
		}
	}
	log.Error("failed to purge wal file")
	log.Error("failed to update storage version", zap.Error(errors.New("something else")))
	if got := said(); strings.Count(got, "level=ERROR") != 2 {
		t.Errorf("errors: %q", got)
	}
	for range 1000 {
		log.Warn("slow fdatasync")
	}
	if got := said(); got != "" {
		t.Errorf("again within %v: %s", repeatAfter, got)
	}
	now = now.Add(repeatAfter)
	log.Warn("slow fdatasync")
	if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "repeated=1000") {
		t.Errorf("later: %q", got)
	}
	stopping.Store(true)
	log.Error("setting up serving from embedded etcd failed.")
	log.Warn("slow fdatasync")
	if got := said(); got != "" {
		t.Errorf("at its end: %s", got)
	}
}
