// Command run is `make demo`: it starts a small mesh on this machine, shows what the control plane does step by step, each
// step measured and judged, and stops everything it started. Exit code 0: every step was seen to hold.
//
// Owns: the processes it starts and a scratch folder.  Reads: the YAML beside it, the programs in bin/.  Never: ends a
// process that it did not start.
//
// HOLD=1 keeps the mesh up after the steps and prints what to try.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds the whole demo, holding aside.
const patience = 5 * time.Minute

// step is one thing to show.
type step struct {
	name, expect string
	run          func(context.Context) (measured string, err error)
}

// row is what became of a step.
type row struct {
	step
	measured string
	err      error
	took     time.Duration
}

func main() {
	intercept := flag.Bool("intercept", false, "Use network namespaces and real redirection (root, iptables).")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	show := demo
	if *intercept {
		show = interceptDemo
	}
	root, err := top()
	built := ""
	if err == nil {
		built, err = buildPrograms(ctx, root)
	}
	var rows []row
	if err == nil {
		rows, err = show(ctx, root, built)
	}
	if len(rows) > 0 {
		summary(os.Stdout, rows)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	for _, r := range rows {
		if r.err != nil {
			os.Exit(1)
		}
	}
}

// scratch makes the folder of one run and says where it is. It stays when something failed.
func scratch(yaml string) (dir, config string, err error) {
	if dir, err = os.MkdirTemp("", "navarch-demo-"); err != nil { // short: it holds Unix sockets
		return "", "", err
	}
	config = filepath.Join(dir, "config")
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o755); err != nil {
		return "", "", err
	}
	return dir, config, copyYAML(yaml, config)
}

// discard removes the scratch folder of a demo that could not begin.
func (m *mesh) discard(err *error) {
	if *err != nil {
		os.RemoveAll(m.dir)
	}
}

// top is the root of the tree, where `make` runs.
func top() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", fmt.Errorf("run this from the top of the tree (make demo): %w", err)
	}
	return dir, nil
}

// buildPrograms builds what the demo runs into bin/, as `make build` does, and returns that folder.
func buildPrograms(ctx context.Context, root string) (string, error) {
	dir := filepath.Join(root, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-tags=grpcnotrace", "-o", dir+"/", "./cmd/...", "./deploy/demo/app")
	build.Dir, build.Env, build.Stderr = root, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the programs: %w", err)
	}
	return dir, nil
}

// newMesh copies the YAML of the folder yaml, under the top of the tree; the programs are in a folder of their own.
func newMesh(root, yaml, programs string) (*mesh, error) {
	m := &mesh{programs: programs, envoy: os.Getenv("NAVARCH_ENVOY"), agent: filepath.Join(programs, "navarch-agent"), places: map[string]place{}}
	if m.envoy == "" {
		m.envoy = filepath.Join(root, ".tools", "bin", "envoy")
	}
	if _, err := os.Stat(m.envoy); err != nil {
		return nil, fmt.Errorf("no Envoy: run `make tools`: %w", err)
	}
	var err error
	if m.dir, m.config, err = scratch(filepath.Join(root, yaml)); err != nil {
		return nil, err
	}
	m.children = newChildren(filepath.Join(m.dir, "logs"))
	return m, nil
}

// play runs the steps in order; a step that fails does not stop the rest, a program that died does.
func (m *mesh) play(ctx context.Context, steps []step) []row {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var rows []row
	for i, s := range steps {
		fmt.Printf("[%2d/%d] %s ... ", i+1, len(steps), s.name)
		began := time.Now()
		measured, err := s.run(ctx)
		if dead := m.children.dead(); err == nil && dead != nil {
			err = dead
		}
		r := row{s, measured, err, time.Since(began)}
		rows = append(rows, r)
		if err != nil {
			fmt.Printf("FAIL after %.1fs\n        %s\n        %v\n", r.took.Seconds(), measured, err)
		} else {
			fmt.Printf("ok, %.1fs\n        %s\n", r.took.Seconds(), measured)
		}
		if ctx.Err() != nil || m.children.dead() != nil {
			break
		}
	}
	return rows
}

// finish holds if asked to, stops everything, and removes the scratch folder if all went well.
func (m *mesh) finish(ctx context.Context, rows []row, hints []string) {
	failed := false
	for _, r := range rows {
		failed = failed || r.err != nil
	}
	if os.Getenv("HOLD") == "1" && ctx.Err() == nil {
		fmt.Printf("\nHOLD=1: the mesh stays up until Ctrl-C. Logs and YAML: %s. Try:\n", m.dir)
		for _, h := range hints {
			fmt.Println("  " + h)
		}
		<-ctx.Done()
	}
	fmt.Print("stopping everything ... ")
	m.children.stopAll()
	fmt.Println("done")
	if failed {
		fmt.Println("logs and YAML of this run are kept in", m.dir)
		return
	}
	os.RemoveAll(m.dir)
}

// summary is the table at the end; long cells go on in the next line.
func summary(out *os.File, rows []row) {
	table := [][3]string{{"step", "expected", "measured"}}
	outcomes := []string{""}
	ok := 0
	for _, r := range rows {
		outcome := "FAIL"
		if r.err == nil {
			outcome = "ok"
			ok++
		}
		table, outcomes = append(table, [3]string{r.name, r.expect, r.measured}), append(outcomes, outcome)
	}
	widths := [3]int{32, 40, 64}
	rule := strings.Repeat("-", widths[0]+widths[1]+widths[2]+4+6)
	fmt.Fprintln(out)
	for i, cells := range table {
		var lines [3][]string
		height := 0
		for j := range cells {
			lines[j] = wrap(cells[j], widths[j])
			height = max(height, len(lines[j]))
		}
		for n := range height {
			for j := range cells {
				text := ""
				if n < len(lines[j]) {
					text = lines[j][n]
				}
				fmt.Fprintf(out, "%-*s  ", widths[j], text)
			}
			if n == 0 {
				fmt.Fprint(out, outcomes[i])
			}
			fmt.Fprintln(out)
		}
		if i == 0 || i == len(table)-1 {
			fmt.Fprintln(out, rule)
		}
	}
	fmt.Fprintf(out, "%d of %d steps held\n", ok, len(rows))
}

// wrap breaks text between words into lines of at most width, where the words allow it.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
