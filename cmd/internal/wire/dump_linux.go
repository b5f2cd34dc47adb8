package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// undumpable keeps other processes of the same user from reading the memory of this one, and the kernel from writing it
// to a file when the process dies, because it has private keys (prctl(2), PR_SET_DUMPABLE). Its children (the agent's
// Envoy, which has the workload's key) are dumpable again from their exec on, but inherit the limit of core dumps.
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

// coreLimit is the maximum size of a core dump in bytes. One byte is too few for any file, and is the only value for
// which the kernel starts no program named in core_pattern either (fs/coredump.c: "RLIMIT_CORE of 1 here as a special
// value"); for zero it does.
const coreLimit = 1
