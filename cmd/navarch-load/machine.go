package main

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/loadtest/report"
)

// machine says where this runs; what cannot be read is left out.
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

// line is what follows "key:" in a file of such lines.
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

// garbagePercent is Go's GOGC where the environment says nothing. What the harness uses of the processors the servers lack: with
// 100 a tenth of its time is the collector's. Memory is what it has: some 50 KB of the 90 KB that a proxy may take (39 KB with 100).
const garbagePercent = 300
