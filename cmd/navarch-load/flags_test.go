package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/loadtest/report"
	"navarch.io/navarch/loadtest/scene"
)

// nil0 is the signal that tests whether a process exists.
const nil0 = syscall.Signal(0)

// Reports contain no folder names of the machine that wrote them.
func TestCommandsAreNamedWithoutFolders(t *testing.T) {
	got := command([]string{"run", "endpoint", "--navarchd", "/home/me/bin/navarchd", "--config-dir=/srv/mesh", "--out", "out/load", "--scale=0.5"})
	want := []string{"run", "endpoint", "--navarchd", "navarchd", "--config-dir=mesh", "--out", "load", "--scale=0.5"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Invalid combinations of flags are refused by their names, before anything is started or written.
func TestFlagsAreChecked(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for want, args := range map[string]string{
		"no scenario":       "run nonesuch --navarchd x",
		"navarchd":          "run endpoint",
		"config-dir":        "run endpoint --address 127.0.0.1:1",
		"folder of its own": "run endpoint --navarchd x --config-dir y",
		"--scale":           "run endpoint --navarchd x --scale 0",
		"want host:port":    "run endpoint --address= --config-dir y",
		"--pid":             "run endpoint --address 127.0.0.1:1 --config-dir y --pid 1,2",
		"tls-key":           "run endpoint --navarchd x --tls-cert y",
		"token-file":        "run endpoint --navarchd x --token-file nonesuch",
		"preset":            "mesh write nonesuch " + out,
		"no such file":      "report nonesuch.json",
		"with":              "compare a.json",
		"loopback":          "attack --addr 192.0.2.1:15012",
		"sink":              "attack",
		"--attack-cpu":      "run hostile --navarchd x --attack-cpu -1",
	} {
		cmd := root()
		var text bytes.Buffer
		cmd.SetOut(&text)
		cmd.SetErr(&text)
		cmd.SetArgs(append(strings.Fields(args), map[bool][]string{true: {"--out", out}}[strings.HasPrefix(args, "run")]...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", args, err, want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a folder was made for a run that was refused")
	}
}

// A screen that is not a terminal gets a line for each phase, and no control characters; a terminal gets a progress
// line.
func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := newScreen(&b, 2)
	s.begin("endpoint", "an endpoint changes")
	v := scene.Progress{Phase: "joining", Share: .5, Proxies: 10, Stats: proxy.Stats{Joined: 5}, RSS: 1 << 20, CPU: .5, Elapsed: time.Second}
	s.show(v)
	s.show(v)
	s.end(report.Scenario{Rows: []report.Row{{Name: "last", Unit: "ms", Value: 1, Better: report.Less}}, Failed: "why",
		Violations: map[string]report.Violations{"duplicate": {Count: 3}}})
	text := b.String()
	if strings.Count(text, "joining") != 1 || strings.ContainsAny(text, "\r\x1b") {
		t.Errorf("%q", text)
	}
	for _, want := range []string{"[1/2] endpoint", "1 ms", "FAILED: why", "VIOLATION duplicate, 3 times"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	v.Stats.Found = map[proxy.Kind]proxy.Violations{"x": {Count: 2}}
	for _, want := range []string{strings.Repeat("█", 12) + strings.Repeat("░", 12), "5/10", "1 MiB", "0.50 cores", "joining", "2 VIOLATIONS"} {
		if got := draw(v); !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	b.Reset()
	s.live = true
	s.show(v)
	s.show(v)
	if strings.Count(b.String(), "\r\x1b[K") != 1 {
		t.Errorf("%q", b.String())
	}
}
