package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/loadtest/report"
	"navarch.io/navarch/loadtest/scene"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/programs"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // scenarios wait until all is quiet
		panic(err) // a flag of package testing
	}
	os.Exit(m.Run())
}

// load runs navarch-load as users do, and returns its result.
func load(t *testing.T, args ...string) report.Result {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), programs.For(t, "navarch-load"), append(args, "--out", out)...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	left, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("the run left %v, %v", left, err)
	}
	r, err := report.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	plots := slices.ContainsFunc(r.Scenarios, func(s report.Scenario) bool {
		return slices.ContainsFunc(s.Latencies, func(l report.Latency) bool { return l.Histogram.Count() > 0 }) ||
			slices.ContainsFunc(s.Series, func(one report.Series) bool { return len(one.Points) > 1 }) // a point is no line
	})
	if raw, err := os.ReadFile(filepath.Join(out, "report.html")); err != nil || plots != bytes.Contains(raw, []byte("<svg")) {
		t.Errorf("plots on the page: want %v, %v", plots, err)
	}
	return r
}

// Every scenario runs to its end at a small size against a real navarchd, with no violation, and measures everything
// that has a target. Those of a cluster need more programs: kube_test.go.
func TestScenariosRun(t *testing.T) {
	var names []string
	for _, s := range scene.All() {
		if !slices.Contains(scene.Suites["kube"], s.Name) && !s.Envoy {
			names = append(names, s.Name)
		}
	}
	const runs = 3 // side by side: most of a scenario is to wait until all is quiet
	for i := range runs {
		var some []string
		for at := i; at < len(names); at += runs {
			some = append(some, names[at])
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			scenariosRun(t, some)
		})
	}
}

func scenariosRun(t *testing.T, names []string) {
	t.Helper()
	args := []string{"run", "--navarchd", programs.For(t, "navarchd"), "--scale", "0.02", "--proxies", "24", "--repeats", "2", "--sample", "1", "--processes", "0", "--attack-cpu", "0",
		"--attack-span", "1s"}
	result := load(t, append(args, names...)...)
	if len(result.Scenarios) != len(names) {
		t.Fatalf("%d scenarios of %d", len(result.Scenarios), len(names))
	}
	for _, s := range result.Scenarios {
		if s.Failed != "" || s.Violated() > 0 || s.Proxies < 24 || s.Traffic["CDS"].Resources == 0 || len(s.Series) < 3 {
			t.Errorf("%s: failed %q, violations %v, %d proxies, traffic %v, %d series", s.Name, s.Failed, s.Violations, s.Proxies, s.Traffic, len(s.Series))
		}
		at := slices.IndexFunc(scene.All(), func(one scene.Scenario) bool { return one.Name == s.Name })
		aimed(t, scene.All()[at], s)
		for _, row := range s.Rows {
			if row.Outcome != report.None {
				t.Errorf("%s: %s has an outcome at this size", s.Name, row.Name)
			}
		}
	}
	exact(t, result)
}

// aimed checks that everything that has a target is measured.
func aimed(t *testing.T, of scene.Scenario, s report.Scenario) {
	t.Helper()
	for name := range of.Targets {
		if !slices.ContainsFunc(s.Rows, func(r report.Row) bool { return r.Name == name && r.Target != nil }) {
			t.Errorf("%s: the target for %q has no figure", s.Name, name)
		}
	}
}

// The scenarios with a real Envoy run to their end, too.
func TestScenariosWithEnvoyRun(t *testing.T) {
	t.Parallel()
	for _, of := range scene.All() {
		if of.Envoy {
			r := load(t, "run", of.Name, "--navarchd", programs.For(t, "navarchd"), "--envoy", envoytest.Binary(t), "--scale", "0.02", "--repeats", "1")
			if s := r.Scenarios[0]; s.Failed != "" {
				t.Errorf("%s: failed %q", s.Name, s.Failed)
			}
			aimed(t, of, r.Scenarios[0])
		}
	}
}

// exact checks the amounts of work, which do not depend on the machine. (The responses of virtualservices-50 do: files
// whose writing takes longer than a debounce are two edits, but no more.)
func exact(t *testing.T, result report.Result) {
	t.Helper()
	for scenario, rows := range map[string]map[string]float64{
		"virtualservice":     {"responses per proxy and edit": 1, "resources sent besides those that changed": 0},
		"virtualservices-50": {"responses per proxy and edit": 1},
		"endpoint":           {"responses per proxy and edit": 1},
		"reconnect":          {"bytes, of those of a first join": 0},
		"kill":               {"bytes, of those of a first join": 0},
		"restart-20000":      {"bytes, of those of a first join": 0},
		"churn":              {"ACKs that did not come": 0},
		"hostile":            {"good proxies disconnected": 0, "ACKs that did not come": 0, "attackers answered as another identity's proxy": 0},
		"roots": {"connections that broke or failed": 0, "proxies without the new root": 0, "identities left with a certificate of the old root": 0,
			"bytes of everything else, of those of a first join": 0},
	} {
		for _, s := range result.Scenarios {
			for _, row := range s.Rows {
				// A tenth of a percent is the size of responses without changes.
				most := .1
				if s.Name == "virtualservices-50" {
					most = 1
				}
				if want, ok := rows[row.Name]; ok && s.Name == scenario && (row.Value < want || row.Value > want+most) {
					t.Errorf("%s: %s is %g, want %g; %v", s.Name, row.Name, row.Value, want, s.Notes)
				}
			}
		}
	}
}

// Several processes of proxies measure the same as one process.
func TestWorkersShareTheFleet(t *testing.T) {
	t.Parallel()
	r := load(t, "run", "endpoint", "slow", "--navarchd", programs.For(t, "navarchd"), "--scale", "0.02", "--proxies", "24", "--repeats", "1", "--processes", "3")
	for _, s := range r.Scenarios {
		if s.Failed != "" || s.Violated() > 0 || s.Proxies != 24 {
			t.Errorf("%s: failed %q, violations %v, %d proxies", s.Name, s.Failed, s.Violations, s.Proxies)
		}
	}
	acks := r.Scenarios[0].Latencies[0].Histogram.Count()
	if acks != 2*4*24 { // two clusters, four edits that count, 24 proxies that see all
		t.Errorf("%d ACKs", acks)
	}
}

// A server that already runs is measured by its address alone, and is not ended.
func TestForeignServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mesh := filepath.Join(dir, "mesh")
	if out, err := exec.Command(programs.For(t, "navarch-load"), "mesh", "write", "tiny", mesh).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ports := [3]string{loopback.For(t), loopback.For(t), loopback.For(t)}
	server := exec.Command(programs.For(t, "navarchd"), "--data-dir", filepath.Join(dir, "data"), "--config-dir", mesh, "--roles", "ingest,xds", "--grpc-addr", ports[0],
		"--http-addr", ports[1], "--monitoring-addr", ports[2], "--secure-grpc-addr", "")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	r := load(t, "run", "endpoint", "--address", ports[0], "--debug-address", ports[1], "--pid", fmt.Sprint(server.Process.Pid), "--config-dir", mesh,
		"--scale", "0.02", "--proxies", "12", "--repeats", "1", "--processes", "0", "--label", "somebody else's")
	if s := r.Scenarios[0]; s.Failed != "" || s.Violated() > 0 || r.Label != "somebody else's" {
		t.Errorf("failed %q, violations %v", s.Failed, s.Violations)
	}
	if _, err := os.Stat(filepath.Join(mesh, "destinationrules")); err == nil { // the tiny world has some, world A none
		t.Error("the folder holds the old world")
	}
	// The row is there where the server's process is known. For twelve proxies it may well be 0: the kernel counts in
	// steps of 10 ms.
	if s := r.Scenarios[0]; !slices.ContainsFunc(s.Rows, func(row report.Row) bool { return row.Name == "server CPU per edit" }) {
		t.Errorf("the server's CPU was not measured: %+v", s.Rows)
	}
	if err := server.Process.Signal(nil0); err != nil {
		t.Errorf("the server was ended: %v", err)
	}
	out, err := exec.Command(programs.For(t, "navarch-load"), "run", "kill", "--address", ports[0], "--config-dir", mesh, "--scale", "0.02", "--proxies", "12", "--out", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not ended here") {
		t.Errorf("killing a server that was not started here: %v\n%s", err, out)
	}
}
