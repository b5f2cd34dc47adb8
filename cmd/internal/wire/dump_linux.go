package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// undumpable protects the private keys in this process's memory. Other processes of the same user cannot read the
// memory, and the kernel writes no core dump (prctl(2), PR_SET_DUMPABLE). Children, such as the agent's Envoy with the
// workload's key, are dumpable again after exec, but inherit the limit of core dumps.
func undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep memory from dumps: %w", err)
	}
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	if err == nil {
		limit.Max = min(limit.Max, coreLimit)
		limit.Cur = limit.Max
		err = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	}
	if err != nil {
		return fmt.Errorf("keep core dumps from being written: %w", err)
	}
	return nil
}

// coreLimit is the maximum size of a core dump in bytes. One byte is too few for any core file. At 1, and at no other
// value, the kernel does not start the program in core_pattern (fs/coredump.c: "RLIMIT_CORE of 1 here as a special
// value").
const coreLimit = 1
