package main

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/loadtest/report"
)

// machine describes this machine; facts that cannot be read are left out.
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

// line returns the text after "key:" in a file of such lines; empty if there is no such line.
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

// garbagePercent is GOGC unless the environment sets it. Processor time of the harness is missing to the servers: with
// GOGC 100 a tenth of its time is the collector's. With 300 a proxy uses 50 KB of the 90 KB that it may use (39 KB with
// 100).
const garbagePercent = 300
