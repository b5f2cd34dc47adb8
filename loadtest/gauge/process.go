package gauge

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Process contains the kernel's counters of one process at one moment.
type Process struct {
	Name string    `json:"name"` // name of the executable, 15 bytes at most
	PID  int       `json:"pid"`
	At   time.Time `json:"at"`
	// RSS is resident memory. Private is the part that no other process shares, Anonymous the part without a file (heap,
	// stacks). All are in bytes, from /proc/PID/smaps_rollup.
	RSS       uint64 `json:"rss_bytes"`
	Private   uint64 `json:"private_bytes"`
	Anonymous uint64 `json:"anonymous_bytes"`
	// User and System are CPU times since the process started, in nanoseconds; the kernel counts in steps of 10 ms.
	User    time.Duration `json:"user_ns"`
	System  time.Duration `json:"system_ns"`
	Threads int           `json:"threads"`
	Files   int           `json:"files"` // open file descriptors
}

// CPU returns the sum of user and system time.
func (p Process) CPU() time.Duration { return p.User + p.System }

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every architecture of Go
// (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html, man 7 time).
const tick = 10 * time.Millisecond

// ReadProcess measures one process. The error names the file of /proc that cannot be read. Memory of another user's
// process requires the right to trace it.
func ReadProcess(pid int) (Process, error) { return readProcess("/proc", pid) }

func readProcess(proc string, pid int) (Process, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	p, err := readStat(dir, pid)
	if err != nil {
		return p, err
	}
	rollup, err := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
	if err != nil {
		return p, fmt.Errorf("process %d: %w", pid, err)
	}
	if err := p.parseRollup(rollup); err != nil {
		return p, fmt.Errorf("process %d: smaps_rollup: %w", pid, err)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "fd")); err == nil {
		p.Files = len(files)
	}
	return p, nil
}

func readStat(dir string, pid int) (Process, error) {
	p := Process{PID: pid, At: time.Now()}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, fmt.Errorf("process %d: %w", pid, err)
	}
	if err := p.parseStat(stat); err != nil {
		return p, fmt.Errorf("process %d: stat: %w", pid, err)
	}
	return p, nil
}

// Glance measures one process without disturbing it. For ReadProcess the kernel sums memory page by page, and blocks
// the process's memory mappings meanwhile. RSS is read from /proc/PID/statm, whose counters may lag by some hundred KB;
// Private, Anonymous and Files are 0. The error names the file that cannot be read or parsed.
func Glance(pid int) (Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	p, err := readStat(dir, pid)
	if err != nil {
		return p, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return p, fmt.Errorf("process %d: %w", pid, err)
	}
	var size, resident uint64 // pages
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		return p, fmt.Errorf("process %d: statm: %w", pid, err)
	}
	p.RSS = resident * uint64(os.Getpagesize())
	return p, nil
}

// ReadCPU returns the CPU time of one process, at no cost for that process. Errors: the process does not exist, or its
// stat file cannot be parsed.
func ReadCPU(pid int) (time.Duration, error) {
	p, err := readStat(filepath.Join("/proc", strconv.Itoa(pid)), pid)
	return p.CPU(), err
}

// parseStat parses /proc/PID/stat. The name is in parentheses and may contain any byte, parentheses included.
func (p *Process) parseStat(b []byte) error {
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 0 || to < from {
		return fmt.Errorf("no name in parentheses: %.60q", b)
	}
	p.Name = string(b[from+1 : to])
	fields := strings.Fields(string(b[to+1:])) // field 3 of the manual page is the first here
	if len(fields) < 18 {
		return fmt.Errorf("%d fields after the name; want 18 or more", len(fields))
	}
	var n [3]uint64
	for i, at := range []int{14 - 3, 15 - 3, 20 - 3} {
		var err error
		if n[i], err = strconv.ParseUint(fields[at], 10, 64); err != nil {
			return fmt.Errorf("field %d: %w", at+3, err)
		}
	}
	p.User, p.System, p.Threads = time.Duration(n[0])*tick, time.Duration(n[1])*tick, int(n[2])
	return nil
}

// parseRollup parses lines such as "Rss: 1234 kB".
func (p *Process) parseRollup(b []byte) error {
	found := false
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		key, rest, ok := strings.Cut(lines.Text(), ":")
		value := strings.Fields(rest)
		if !ok || len(value) != 2 || value[1] != "kB" {
			continue
		}
		n, err := strconv.ParseUint(value[0], 10, 54)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		switch n *= 1024; key {
		case "Rss":
			p.RSS, found = n, true
		case "Private_Clean", "Private_Dirty":
			p.Private += n
		case "Anonymous":
			p.Anonymous = n
		}
	}
	if !found {
		return fmt.Errorf("no line Rss: %.60q", b)
	}
	return nil
}
