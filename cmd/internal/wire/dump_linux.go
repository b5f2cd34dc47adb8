package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// undumpable keeps other processes of the same user from reading this one's memory, and the kernel from writing it to a file when
// the process dies: it has private keys (prctl(2), PR_SET_DUMPABLE; issue 12, item 18).
func undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep memory from dumps: %w", err)
	}
	return nil
}
