package obs

import (
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
