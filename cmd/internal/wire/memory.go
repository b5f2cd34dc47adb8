package wire

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// headroom is the fraction of the container's memory that Go may use; the rest is for memory that Go does not count
// (page tables, thread stacks, the embedded etcd's mapped file).
const headroom = 0.9

// LimitMemory sets Go's memory limit from the container's (cgroup v1 or v2), so that the collector works harder before
// the kernel kills the process. GOMEMLIMIT and AUTOMEMLIMIT=off take precedence. It returns the limit that it has set,
// in bytes; 0 if it has set no limit.
func LimitMemory(log *slog.Logger) int64 {
	limit, err := memlimit.Set(memlimit.WithRatio(headroom), memlimit.WithProvider(memlimit.FromCgroup))
	switch {
	case errors.Is(err, memlimit.ErrNoCgroup), err == nil && limit == math.MaxInt64:
		return 0
	case err != nil:
		log.Warn("the memory limit of the container is not known", "error", err)
		return 0
	case limit > 0:
		log.Info("memory limit", "bytes", limit)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	return limit
}

// TuneCollector sets the garbage that may accumulate beside live memory, in percent of live memory. GOGC takes
// precedence.
func TuneCollector(percent int) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(percent)
	}
}
