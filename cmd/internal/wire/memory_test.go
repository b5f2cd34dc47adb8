package wire

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"testing"
)

// The operator's setting takes precedence, and a machine without a limit gets no limit.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "1GiB")
	debug.SetMemoryLimit(1 << 30)
	if got := LimitMemory(slog.New(slog.DiscardHandler)); got != 0 {
		t.Errorf("a limit of the environment is taken for the container's: %d", got)
	}
	if got := debug.SetMemoryLimit(-1); got != 1<<30 {
		t.Errorf("the limit of the environment became %d", got)
	}
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("AUTOMEMLIMIT", "off")
	debug.SetMemoryLimit(math.MaxInt64)
	if got := LimitMemory(slog.New(slog.DiscardHandler)); got != 0 {
		t.Errorf("off, and the limit is %d", got)
	}
}

// The operator's setting takes precedence over ours.
func TestTuneCollector(t *testing.T) {
	t.Setenv("GOGC", "75")
	before := debug.SetGCPercent(75)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	TuneCollector(50)
	if got := debug.SetGCPercent(75); got != 75 {
		t.Errorf("GOGC of the environment became %d", got)
	}
	_ = os.Unsetenv("GOGC") // Setenv above brings it back
	TuneCollector(50)
	if got := debug.SetGCPercent(75); got != 50 {
		t.Errorf("GOGC is %d, want 50", got)
	}
}
