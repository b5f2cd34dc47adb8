package main

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/navarchd/controlz"
	"navarch.io/navarch/store/obs"
)

// Levels are shown, set for all scopes or for some, and reset to those of the start. A scope or a level that does not
// exist is an error, and nothing is changed.
func TestLog(t *testing.T) {
	levels, _, err := obs.NewLevels("info,ca:warn")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(controlz.Handler(levels, slog.New(slog.DiscardHandler)))
	defer server.Close()
	for _, step := range []struct{ args, levels, fails string }{
		{"", "info info warn info info info", ""},
		{"--level ads:debug,ca:error", "info debug error info info info", ""},
		{"--level xds:debug,ads:none", "info debug error info info info", `has no scope "xds"; it has admit, ads, ca, default, etcd, ingest; no level is changed`},
		{"--level ads:none,ca:loud", "info debug error info info info", `--level: log level "ca:loud"`},
		{"--level none", "none none none none none none", ""},
		{"--level all:debug,ads:warn", "debug warn debug debug debug debug", ""},
		{"--reset --level debug", "debug warn debug debug debug debug", "none of the others can be"},
		{"istiod-0 --level error", "debug warn debug debug debug debug", "cannot be named together with --server"},
		{"--reset", "info info warn info info info", ""},
	} {
		var out bytes.Buffer
		cmd := root()
		cmd.SetArgs(append([]string{"log", "--server", server.Listener.Addr().String()}, strings.Fields(step.args)...))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(t.Context())
		if (err != nil) != (step.fails != "") || err != nil && !strings.Contains(err.Error(), step.fails) {
			t.Errorf("log %s: %v", step.args, err)
		}
		var got []string
		for _, s := range levels.All() {
			got = append(got, s.Level())
			if err == nil && !strings.Contains(strings.Join(strings.Fields(out.String()), " "), s.Name+" "+s.Level()+" "+server.Listener.Addr().String()) {
				t.Errorf("log %s: %s is %s, and it prints\n%s", step.args, s.Name, s.Level(), out.String())
			}
		}
		if all := strings.Join(got, " "); all != step.levels {
			t.Errorf("log %s: levels are %s, want %s", step.args, all, step.levels)
		}
	}
}

// Several addresses at --server are several processes, of which each is named and changed.
func TestLogOfSeveral(t *testing.T) {
	var all []*obs.Levels
	var addresses []string
	for range 2 {
		levels, _, err := obs.NewLevels("info")
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(controlz.Handler(levels, slog.New(slog.DiscardHandler)))
		defer server.Close()
		all, addresses = append(all, levels), append(addresses, server.Listener.Addr().String())
	}
	out, _, err := ran("log", "--server", strings.Join(addresses, ","), "--level", "ads:debug")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "ads debug all 2") {
		t.Errorf("%v: %s", err, out)
	}
	for i, levels := range all {
		if got := levels.Find("ads").Level(); got != "debug" {
			t.Errorf("process %d: %s", i, got)
		}
	}
}

// A level that applies at some processes only has its own row, which names them.
func TestLevelRows(t *testing.T) {
	one := func(name, level string) levelled {
		return levelled{page{address: name}, []controlz.Scope{{Name: "ca", OutputLevel: "info"}, {Name: "ads", OutputLevel: level}}}
	}
	var rows []string
	for _, l := range levelRows([]levelled{one("a", "info"), one("b", "debug"), one("c", "info")}) {
		rows = append(rows, l.Scope+" "+l.Level+" "+strings.Join(l.Processes, "+"))
	}
	if got := strings.Join(rows, "; "); got != "ads info a+c; ads debug b; ca info a+b+c" {
		t.Error(got)
	}
}

// If a process does not answer, the levels of the others are still shown and changed, and it is named.
func TestLevelsWhereOneIsAway(t *testing.T) {
	levels, _, err := obs.NewLevels("info")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(controlz.Handler(levels, slog.New(slog.DiscardHandler)))
	defer server.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	pages := []page{{address: gone.Listener.Addr().String()}, {address: server.Listener.Addr().String()}}
	for _, changes := range [][]levelChange{nil, {{scope: "ads", level: "debug"}}} {
		said, failed := changeLevels(t.Context(), pages, changes)
		if len(said) != 1 || said[0].page.address != pages[1].address || failed == nil || !strings.Contains(failed.Error(), pages[0].address) {
			t.Errorf("%v: %+v %v", changes, said, failed)
		}
	}
	if got := levels.Find("ads").Level(); got != "debug" {
		t.Errorf("ads is %s", got)
	}
}
