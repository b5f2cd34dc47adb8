package scene

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// cage is a cgroup that limits the processor time of all its processes together.
type cage struct{ dir string }

const cagePeriod = 100_000 // microseconds, cpu.cfs_period_us; the kernel's own default

// newCage creates a cgroup (v1 or v2) with a limit in cores. It is created below this process's own cgroup, or below
// the nearest ancestor that permits it (cgroups(7)). The error lists why none permits it.
func newCage(cores float64) (*cage, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cageNeeds, err)
	}
	var refused []error
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3) // id, controllers, path
		if len(part) != 3 {
			continue
		}
		root, set := "/sys/fs/cgroup", map[string]string{"cpu.max": fmt.Sprintf("%d %d", int(cores*cagePeriod), cagePeriod)}
		if part[0] != "0" {
			root = "/sys/fs/cgroup/cpu"
			set = map[string]string{"cpu.cfs_period_us": fmt.Sprint(cagePeriod), "cpu.cfs_quota_us": fmt.Sprint(int(cores * cagePeriod))}
			if !strings.Contains(","+part[1]+",", ",cpu,") {
				continue
			}
		}
		for below := part[2]; ; below = filepath.Dir(below) { // in a container the path may be the host's
			made, err := makeCage(filepath.Join(root, below), set)
			if err == nil {
				return made, nil
			}
			if refused = append(refused, err); below == "/" || below == "." {
				break
			}
		}
	}
	return nil, fmt.Errorf("%s: %w", cageNeeds, errors.Join(refused...))
}

const cageNeeds = "the attackers need a cgroup of their own with the controller cpu, which takes root, or a session with Delegate=cpu " +
	"(without one, and so with figures that count for nothing: --attack-cpu 0)"

func makeCage(parent string, set map[string]string) (*cage, error) {
	dir, err := os.MkdirTemp(parent, "navarch-load-")
	if err != nil {
		return nil, err
	}
	c := &cage{dir: dir}
	for name, value := range set {
		err = errors.Join(err, write(filepath.Join(c.dir, name), value))
	}
	if err == nil { // a cgroup that accepts no process is useless
		if err = c.command("true").Run(); err != nil {
			err = fmt.Errorf("no process can be put into %s: %w", c.dir, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

// write writes to an existing file of the kernel.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// command returns a command that runs in the cage from its first instruction on; a nil cage has no effect.
func (c *cage) command(argv ...string) *exec.Cmd {
	if c == nil {
		return exec.Command(argv[0], argv[1:]...)
	}
	return exec.Command("/bin/sh", append([]string{"-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(c.dir, "cgroup.procs")}, argv...)...)
}

// remove deletes the cgroup. It retries, because the kernel refuses for a moment after the last process has ended.
func (c *cage) remove() error {
	if c == nil {
		return nil
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := os.Remove(c.dir)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
