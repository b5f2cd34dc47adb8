package main

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/loadtest/report"
)

// machine describes this machine. A value that cannot be read is "unknown" (CPU, Kernel), 0 (Memory) or empty (Load).
func machine() report.Machine {
	m := report.Machine{Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), CPU: "unknown", Kernel: "unknown"}
	if name := line("/proc/cpuinfo", "model name"); name != "" {
		m.CPU = name
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = uint64(info.Totalram) * uint64(info.Unit)
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(raw))[:3], " ")
	}
	return m
}

// line returns the value of the first line "key: value" in a file. It returns "" if there is no such line or no such
// file.
func line(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// garbagePercent is the value of GOGC unless the environment sets one. The measured servers share the processors with
// this program. Less frequent collections use less processor time, at the cost of more memory for each simulated proxy.
const garbagePercent = 300
