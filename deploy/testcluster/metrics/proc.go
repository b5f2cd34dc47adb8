package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is the resource usage of the processes of one process namespace.
type usage struct {
	seconds float64 // CPU time since the processes started
	bytes   float64 // resident memory
}

// ticks is the number of the kernel's time units per second for user space (USER_HZ).
const ticks = 100

// usages reads /proc once, and returns the usage by process namespace; each container has one.
func usages() map[string]usage {
	all := map[string]usage{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		space, err := os.Readlink(dir + "/ns/pid")
		if err != nil {
			continue // the process has ended
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		one := parseStat(string(stat))
		sum := all[space]
		all[space] = usage{sum.seconds + one.seconds, sum.bytes + one.bytes}
	}
	return all
}

// parseStat parses a line of proc_pid_stat(5): utime and stime, also of children that were waited for (fields 14 to
// 17), and rss (24) in pages.
func parseStat(line string) usage {
	_, rest, _ := strings.Cut(line[max(strings.LastIndexByte(line, ')'), 0):], " ")
	fields := strings.Fields(rest) // from field 3
	if len(fields) < 22 {
		return usage{}
	}
	var u usage
	for _, f := range fields[11:15] {
		n, _ := strconv.ParseFloat(f, 64) // the kernel writes numbers
		u.seconds += n / ticks
	}
	pages, _ := strconv.ParseFloat(fields[21], 64)
	u.bytes = pages * float64(os.Getpagesize())
	return u
}

// spaceOf returns the process namespace of a container by its first process.
func spaceOf(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)) }
