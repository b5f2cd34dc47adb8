package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// undumpable keeps other processes of the same user from reading this one's memory, and the kernel from writing it to a file when
// the process dies: it has private keys (prctl(2), PR_SET_DUMPABLE; issue 12, item 18). What it starts is dumpable again from its exec
// on (the agent's Envoy, which has the workload's key): that inherits the limit of core dumps.
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

// coreLimit is the most bytes of a core dump. One byte is too few for any file, and is the one value for which the kernel starts no
// program either that core_pattern names to take dumps (fs/coredump.c: "RLIMIT_CORE of 1 here as a special value"); with zero it does.
const coreLimit = 1
