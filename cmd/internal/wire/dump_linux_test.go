package wire

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// isCommand has this test binary be a command of ours.
const isCommand = "WIRE_TEST_COMMAND"

// The command prints whether it is dumpable, and starts a program that prints its limits. It is a separate process,
// because limits cannot be raised again.
func TestCommand(t *testing.T) {
	if os.Getenv(isCommand) == "" {
		return // the tests below run it
	}
	cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error {
		fmt.Println("dumpable:", dumpable(t))
		child := exec.Command("cat", "/proc/self/limits")
		child.Stdout = os.Stdout
		return child.Run()
	}}
	cmd.SetArgs([]string{})
	Main(cmd)
}

// command runs TestCommand with NAVARCH_DUMPABLE, and returns the text after a word of its output.
func command(t *testing.T, allowed, word string) string {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestCommand$")
	c.Env = append(os.Environ(), isCommand+"=1", dumpableEnv+"="+allowed)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if rest, is := strings.CutPrefix(line, word); is {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	t.Fatalf("no %q: %s", word, out)
	return ""
}

// A command's memory is not readable for other processes and not written by the kernel, unless NAVARCH_DUMPABLE permits
// it.
// Promise: security-keys.md#the-power-of-each-key
func TestNotDumpable(t *testing.T) {
	was := dumpable(t)
	for allowed, want := range map[string]bool{"": false, "false": false, "true": was} {
		if got := command(t, allowed, "dumpable:"); got != strconv.FormatBool(want) {
			t.Errorf("%s=%q: dumpable %s, want %t", dumpableEnv, allowed, got, want)
		}
	}
}

// Child processes of a command, such as the agent's Envoy, leave no core dump by default.
// Promise: security-keys.md#the-power-of-each-key
func TestChildrenLeaveNoCore(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil {
		t.Fatal(err)
	}
	text := func(n uint64) string {
		if n == unix.RLIM_INFINITY {
			return "unlimited"
		}
		return strconv.FormatUint(n, 10)
	}
	for allowed, want := range map[string]unix.Rlimit{"": {Cur: min(own.Max, 1), Max: min(own.Max, 1)}, "true": own} {
		if got := command(t, allowed, "Max core file size"); got != text(want.Cur)+" "+text(want.Max)+" bytes" {
			t.Errorf("%s=%q: %s, want %+v", dumpableEnv, allowed, got, want)
		}
	}
}
