package quickstart

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
)

// forever begins a block whose command runs until it is stopped.
const forever = "# in a terminal of its own"

// promised is the expected output of each block that ends, by a command in the block.
var promised = map[string][]string{
	"make build":     nil,
	"token create":   {"valid until"},
	"/healthz/ready": {"ready\n", `"upstream":"quotes"`, `"status":200`, `"host":`},
	"render":         {`name: "8000"`, "quotes.example.com", "cluster: outbound|8000||catalog.shop.svc.cluster.local"},
	"explain":        {"Service shop/catalog"},
	"proxy-status":   {"web-0.shop", "SYNCED", "catalog.shop.svc.cluster.local:8000", "\n[]\n"},
	"config secret":  {"spiffe://cluster.local/ns/shop/sa/web"},
}

// The blocks under "Quick start" work as described, unchanged and in order.
func TestQuickStart(t *testing.T) {
	if os.Getenv(inside) == "" {
		inNamespaces(t, "TestQuickStart")
		return
	}
	arrive(t)
	before := entries(t, top)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	logs := &envoytest.Output{}
	defer func() {
		if t.Failed() {
			t.Logf("the terminals of their own said:\n%s", logs)
		}
	}()
	missing := slices.Sorted(maps.Keys(promised))
	for _, block := range blocks(t) {
		if strings.HasPrefix(block, forever) {
			keep(t, block, logs)
			continue
		}
		missing = slices.DeleteFunc(missing, func(command string) bool { return strings.Contains(block, command) })
		run(ctx, t, block)
	}
	if len(missing) > 0 {
		t.Errorf("no block of README's quick start has %q", missing)
	}
	noListenerIsRefused(t)
	allAreBuilt(t)
	if after := entries(t, top); !slices.Equal(before, after) {
		t.Errorf("beside out/quickstart it leaves: %v, before %v", after, before)
	}
	if got := entries(t, filepath.Join(top, "out")); !slices.Equal(got, []string{"quickstart"}) {
		t.Errorf("out has %v", got)
	}
	if info, err := os.Stat(filepath.Join(top, "out/quickstart")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("out/quickstart: %v, %v: want mode 0700", info.Mode(), err)
	}
}

// blocks returns the fenced blocks of the chapter.
func blocks(t *testing.T) (all []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, found := strings.Cut(string(page), "\n## Quick start\n")
	chapter, _, ends := strings.Cut(chapter, "\n## ")
	if !found || !ends {
		t.Fatal(`README.md has no chapter "Quick start"`)
	}
	for i, part := range strings.Split(chapter, "\n```") {
		if i%2 == 1 {
			_, text, _ := strings.Cut(part, "\n") // the language follows the fence
			all = append(all, text+"\n")
		}
	}
	return all
}

func bash(ctx context.Context, block string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+block)
	cmd.Dir = top
	cmd.Env = slices.DeleteFunc(os.Environ(), func(row string) bool {
		return strings.HasPrefix(row, "MAKE") || strings.HasPrefix(row, inside) || strings.HasPrefix(row, "GOFLAGS=")
	})
	cmd.Env = append(cmd.Env, flags())
	return cmd
}

// run runs a block that ends.
func run(ctx context.Context, t *testing.T, block string) {
	t.Helper()
	out, err := bash(ctx, block).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s%s", err, block, out)
	}
	known := false
	for command, want := range promised {
		if !strings.Contains(block, command) {
			continue
		}
		known = true
		for _, text := range want {
			if !strings.Contains(string(out), text) {
				t.Errorf("does not say %q:\n%s%.3000s", text, block, out)
			}
		}
	}
	if !known {
		t.Errorf("nothing is promised of the block, add what it must say:\n%s", block)
	}
}

// keep starts a block that runs until the test ends; that it ends earlier is a failure.
func keep(t *testing.T, block string, logs io.Writer) {
	t.Helper()
	cmd := bash(context.Background(), block)
	cmd.Stdout, cmd.Stderr = logs, logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("it ended: %v\n%s", err, block)
		default: // the process ends with the namespace
		}
	})
}

// noListenerIsRefused checks by Envoy's own counters that it has all its listeners, and has refused none.
func noListenerIsRefused(t *testing.T) {
	t.Helper()
	resp, err := http.Get("http://127.0.0.1:15000/stats?format=json&filter=" + `^(listener_manager\.(lds\.update_rejected|total_listeners_active|listener_create_failure)|cluster_manager\.cds\.update_rejected)$`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprintf("%+v", page.Stats)
	for _, s := range page.Stats {
		switch {
		case s.Name == "":
		case s.Name == "listener_manager.total_listeners_active":
			if s.Value < 2 {
				t.Errorf("Envoy has %d listeners", s.Value)
			}
		case s.Value != 0:
			t.Errorf("Envoy counts %s: %d", s.Name, s.Value)
		}
	}
	if !strings.Contains(said, "total_listeners_active") || !strings.Contains(said, "lds.update_rejected") {
		t.Errorf("Envoy's counters: %s", said)
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
