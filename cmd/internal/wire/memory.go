package wire

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// headroom is the fraction of the container's memory that Go may use. The rest is for memory that Go does not count
// (page tables, thread stacks, the mapped file of the embedded etcd).
const headroom = 0.9

// LimitMemory sets Go's memory limit to 0.9 of the container's (cgroup v1 or v2), or to the fraction in AUTOMEMLIMIT.
// The garbage collector then works harder before the kernel kills the process. The result is the limit in bytes. It is
// 0 outside of a container and in a container without a limit. It is also 0 with GOMEMLIMIT or AUTOMEMLIMIT=off, which
// take precedence, and after a failure, which is logged.
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

// TuneCollector sets the target of the garbage collector as GOGC does: garbage in percent of live memory. A negative
// percent turns the collector off. If GOGC is set, even if empty, TuneCollector does nothing.
func TuneCollector(percent int) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(percent)
	}
}
