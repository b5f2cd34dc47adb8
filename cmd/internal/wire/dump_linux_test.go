package wire

import (
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func dumpable(t *testing.T) bool {
	t.Helper()
	n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// A command's memory is not for other processes, nor for a file of the kernel's, unless who measures it says so.
func TestNotDumpable(t *testing.T) {
	was := dumpable(t)
	t.Cleanup(func() {
		if was {
			_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		}
	})
	for allowed, want := range map[string]bool{"": false, "false": false, "true": was} {
		if was {
			if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(dumpableEnv, allowed)
		var got bool
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error { got = dumpable(t); return nil }}
		cmd.SetArgs([]string{})
		Main(cmd)
		if got != want {
			t.Errorf("%s=%q: dumpable %t, want %t", dumpableEnv, allowed, got, want)
		}
	}
}
