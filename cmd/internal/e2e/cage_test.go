package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// cage is a memory cgroup of a test's own: who uses more memory in it than there is is killed by the kernel.
type cage struct {
	dir    string
	events string // the file that counts kills
}

// newCage creates a cgroup (v1 or v2) below this process's own, or below the nearest ancestor that permits it. At the
// end of the test it is deleted, after the processes in it. Without the right to create one the test is skipped: it
// requires root, or a session with a delegated subtree of systemd (Delegate=memory).
func newCage(t testing.TB, bytes int) *cage {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skipf("no memory cgroup can be made: %v", err)
	}
	var refused []error
	for line := range strings.Lines(string(text)) {
		c := strings.SplitN(strings.TrimSpace(line), ":", 3) // cgroups(7): an id, controllers, a path
		switch {
		case len(c) != 3:
			continue
		case c[1] == "memory" || strings.HasPrefix(c[1], "memory,") || strings.Contains(c[1], ",memory"):
			c[0], c[1] = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case c[0] == "0":
			c[0], c[1] = "/sys/fs/cgroup", "memory.max"
		default:
			continue
		}
		for below := c[2]; ; below = filepath.Dir(below) { // in a container the path may be the host's
			made, err := makeCage(filepath.Join(c[0], below), c[1], bytes)
			if err == nil {
				t.Cleanup(func() { made.remove(t) })
				return made
			}
			if refused = append(refused, err); below == "/" || below == "." {
				break
			}
		}
	}
	t.Skipf("no memory cgroup can be made: %v", errors.Join(refused...))
	return nil
}

func makeCage(parent, limit string, bytes int) (*cage, error) {
	c := &cage{dir: filepath.Join(parent, fmt.Sprintf("navarch-test-%d", os.Getpid()))}
	c.events = filepath.Join(c.dir, "memory.events")
	if limit != "memory.max" {
		c.events = filepath.Join(c.dir, "memory.oom_control")
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, err
	}
	err := set(filepath.Join(c.dir, limit), fmt.Sprint(bytes))
	if err == nil { // a cgroup that accepts no process is useless
		err = exec.Command("/bin/sh", "-c", `echo $$ > "$0"`, c.procs()).Run()
	}
	if err == nil {
		_, err = c.kills()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.dir, err), os.Remove(c.dir))
	}
	for _, swap := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max"} { // where the kernel counts it
		_ = set(filepath.Join(c.dir, swap), map[bool]string{true: "0", false: fmt.Sprint(bytes)}[swap == "memory.swap.max"])
	}
	return c, nil
}

// remove deletes the cgroup, with retries while the kernel still releases its last processes.
func (c *cage) remove(t testing.TB) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := os.Remove(c.dir)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Errorf("the cgroup stays: %v", err)
			return
		}
	}
}

// set writes a value to an existing file of the kernel's file system.
func set(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (c *cage) procs() string { return filepath.Join(c.dir, "cgroup.procs") }

// program returns the path of a program that runs path inside the cage, from its first instruction on.
func (c *cage) program(t testing.TB, path string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "caged")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\necho $$ > '%s' && exec '%s' \"$@\"\n", c.procs(), path), 0o755); err != nil {
		t.Fatal(err)
	}
	return script
}

// kills returns the number of processes of the cage that the kernel has killed.
func (c *cage) kills() (n int, err error) {
	text, err := os.ReadFile(c.events)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s does not count kills", c.events)
}
