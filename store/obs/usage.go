package obs

import (
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime returns the processor time of this process so far: the sum of user and system mode (getrusage(2)).
func ProcessorTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0 // unreachable with these arguments
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// LimitedMemory returns the bytes of this process that Go's memory limit (GOMEMLIMIT) bounds: all memory that the
// runtime has mapped, without the part that it returned to the system. It is 0 if the runtime does not report them.
func LimitedMemory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	all, released := samples[0].Value, samples[1].Value
	if all.Kind() != metrics.KindUint64 || released.Kind() != metrics.KindUint64 {
		return 0
	}
	return all.Uint64() - released.Uint64()
}
