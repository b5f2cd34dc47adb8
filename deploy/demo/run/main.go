// Command run is `make demo`. It starts a small mesh on this machine, demonstrates the control plane in steps, each of
// which is measured and checked, and stops everything. Exit code 0 means that every step passed.
//
// Owns: its processes and a scratch folder. Reads: the YAML beside it, the programs in bin/. Never: ends a process that
// it did not start.
//
// HOLD=1 keeps the mesh up after the steps and prints commands to try.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"navarch.io/navarch/deploy/demo/show"
)

// patience limits the duration of the demo without HOLD.
const patience = 5 * time.Minute

// step is one demonstration.
type step show.Step

func main() {
	intercept := flag.Bool("intercept", false, "Use network namespaces and real redirection (root).")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	present := demo
	if *intercept {
		present = interceptDemo
	}
	root, err := top()
	built := ""
	if err == nil {
		built, err = buildPrograms(ctx, root)
	}
	var rows []show.Row
	if err == nil {
		rows, err = present(ctx, root, built)
	}
	if len(rows) > 0 {
		show.Summary(os.Stdout, rows)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	if show.Failed(rows) {
		os.Exit(1)
	}
}

// scratch creates the folder of one run and returns its path. The folder is kept after a failure.
func scratch(yaml string) (dir, config string, err error) {
	if dir, err = os.MkdirTemp("", "navarch-demo-"); err != nil { // short, because it contains Unix sockets
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

// heldAt is a link to the scratch folder while the mesh is held, for examples with --data-dir.
const heldAt = "out/demo"

// link makes the link to the scratch folder; unlink removes it. Without the link only these examples do not run.
func (m *mesh) link() (unlink func()) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(heldAt), 0o755), os.Symlink(m.dir, heldAt)); err != nil {
		fmt.Fprintln(os.Stderr, "demo: no link to the folder:", err)
		return func() {}
	}
	return func() { os.Remove(heldAt) }
}

// top returns the root of the source tree, in which `make` runs.
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

// buildPrograms builds the demo's programs into bin/, as `make build` does, and returns that folder.
func buildPrograms(ctx context.Context, root string) (string, error) {
	dir := filepath.Join(root, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-tags=grpcnotrace", "-o", dir+"/", "./cmd/...", "./deploy/demo/app")
	build.Dir, build.Env, build.Stderr = root, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the programs: %w", err)
	}
	return dir, nil
}

// newMesh copies the YAML of the folder yaml below root; the programs are in a separate folder.
func newMesh(root, yaml, programs string) (*mesh, error) {
	m := &mesh{programs: programs, envoy: os.Getenv("NAVARCH_ENVOY"),
		agent: filepath.Join(programs, "navarch-agent"), places: map[string]place{}}
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

// play runs the steps in order. A failed step does not stop the others, but a program that ended by itself does.
func (m *mesh) play(ctx context.Context, steps []step) []show.Row {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := make([]show.Step, len(steps))
	for i, s := range steps {
		all[i] = show.Step(s)
	}
	return show.Play(ctx, os.Stdout, all, m.children.dead)
}

// finish waits if HOLD=1, stops everything, and removes the scratch folder if all steps passed.
func (m *mesh) finish(ctx context.Context, rows []show.Row, hints []string) {
	if os.Getenv("HOLD") == "1" && ctx.Err() == nil {
		fmt.Printf("\nHOLD=1: the mesh stays up until Ctrl-C. Logs and YAML: %s. Try:\n", m.dir)
		defer m.link()()
		for _, h := range hints {
			fmt.Println("  " + h)
		}
		<-ctx.Done()
	}
	fmt.Print("stopping everything ... ")
	m.children.stopAll()
	fmt.Println("done")
	if show.Failed(rows) {
		fmt.Println("logs and YAML of this run are kept in", m.dir)
		return
	}
	os.RemoveAll(m.dir)
}
