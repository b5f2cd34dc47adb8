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

// Process is what the kernel counts of one process, at one moment.
type Process struct {
	Name string    `json:"name"` // of the executable, 15 bytes at most
	PID  int       `json:"pid"`
	At   time.Time `json:"at"`
	// RSS is resident memory, Private the part of it that the process shares with no other, Anonymous the part that is no
	// file (heap, stacks); bytes, of /proc/PID/smaps_rollup.
	RSS       uint64 `json:"rss_bytes"`
	Private   uint64 `json:"private_bytes"`
	Anonymous uint64 `json:"anonymous_bytes"`
	// User and System are CPU time since its start, in nanoseconds; the kernel counts in steps of 10 ms.
	User    time.Duration `json:"user_ns"`
	System  time.Duration `json:"system_ns"`
	Threads int           `json:"threads"`
	Files   int           `json:"files"` // open descriptors
}

// CPU is user and system time together.
func (p Process) CPU() time.Duration { return p.User + p.System }

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every architecture that Go has
// (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html, man 7 time).
const tick = 10 * time.Millisecond

// ReadProcess measures one process. An error says which file of /proc could not be read; memory of another user's process
// needs the right to trace it.
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

// Glance measures one process without disturbing it: for ReadProcess the kernel sums up memory page by page, while the process
// cannot map any. RSS is what its own counters say (/proc/PID/statm), which may lag by some hundred KB; Private, Anonymous and
// Files are 0.
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

// ReadCPU measures the CPU time of one process alone, which costs it nothing. An error: there is no such process, or the kernel says of it what
// cannot be understood.
func ReadCPU(pid int) (time.Duration, error) {
	p, err := readStat(filepath.Join("/proc", strconv.Itoa(pid)), pid)
	return p.CPU(), err
}

// parseStat reads /proc/PID/stat. The name is in parentheses and may hold any byte, parentheses too.
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

// parseRollup reads lines such as "Rss:  1234 kB".
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
