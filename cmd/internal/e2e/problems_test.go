package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// problems returns the content of /debug/problems.
func (d *daemon) problems() ([]inspect.Problem, error) {
	page, err := get(d.http, "/debug/problems")
	if err != nil {
		return nil, err
	}
	var all []inspect.Problem
	return all, json.Unmarshal([]byte(page), &all)
}

// hasProblem waits for a line of /debug/problems that contains all the words.
func (d *daemon) hasProblem(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, patience, func() error {
		all, err := d.problems()
		if err != nil {
			return err
		}
		for _, p := range all {
			line, missing := fmt.Sprintf("%+v", p), false
			for _, w := range words {
				missing = missing || !strings.Contains(line, w)
			}
			if !missing {
				return nil
			}
		}
		return fmt.Errorf("no problem with %q in %+v", words, all)
	})
}

// has returns a check that a client receives resources with these names.
func has(t *testing.T, d *daemon, names ...string) func() error {
	return func() error {
		got, err := everything(t.Context(), d.grpc, node("shop", "client", "10.1.9.9"))
		if err != nil {
			return err
		}
		for _, name := range names {
			if got[name] == nil {
				return fmt.Errorf("%s is not there", name)
			}
		}
		return nil
	}
}

var (
	webCluster = xds.Cluster.URL() + " outbound|80||web.shop.svc.cluster.local"
	dbCluster  = xds.Cluster.URL() + " outbound|80||db.shop.svc.cluster.local"
)

// An invalid edit of a valid object, a file that does not parse and a partly written one remove nothing. Each is
// reported with file, object and field, and valid objects in the same folder apply.
func TestBadEdits(t *testing.T) {
	parallel(t)
	dir := folder(t)
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir())
	eventually(t, patience, serves(t, d, 1))

	write(t, dir, "routes.yaml", strings.Replace(routes(2), "timeout: 2s", "timeout: soon", 1))
	d.hasProblem(t, "VirtualService shop/web", "routes.yaml", "timeout")
	write(t, dir, "services.yaml", services+"---\nkind: [\n")
	d.hasProblem(t, "services.yaml")
	write(t, dir, "more.yaml", strings.NewReplacer("name: web,", "name: more,", "hosts: [web]", "hosts: [more.example]").Replace(routes(1)))
	d.hasProblem(t, "VirtualService shop/web", "routes.yaml", "timeout") // still
	if err := serves(t, d, 1)(); err != nil {
		t.Errorf("the last good version does not stand: %v", err)
	}
	if err := has(t, d, webCluster, dbCluster)(); err != nil {
		t.Errorf("services of a file with a broken document: %v", err)
	}

	write(t, dir, "routes.yaml", routes(3))
	eventually(t, patience, serves(t, d, 3))
}

// When a folder's contents disappear at once, the removal is held, and reported as a problem; --allow-empty releases
// it, after a restart too.
// Promise: security-tenants.md#remove-many-objects
func TestShrinkGuard(t *testing.T) {
	parallel(t)
	dir, data := folder(t), t.TempDir()
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, has(t, d, webCluster))
	for _, name := range []string{"services.yaml", "routes.yaml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	d.hasProblem(t, "Service", "missing in the folder", "navarchctl removals accept ")
	if err := has(t, d, webCluster, dbCluster)(); err != nil {
		t.Errorf("while the guard holds: %v", err)
	}
	d.stop(t)
	d = start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	d.hasProblem(t, "missing in the folder", "navarchctl removals accept ")
	if err := has(t, d, webCluster, dbCluster)(); err != nil {
		t.Errorf("after a restart on the empty folder: %v", err)
	}
	d.stop(t)
	d = start(t, "--config-dir", dir, "--data-dir", data, "--allow-empty")
	eventually(t, patience, func() error {
		if err := d.ready(); err != nil {
			return err
		}
		if err := has(t, d, webCluster)(); err == nil {
			return fmt.Errorf("the service is still there")
		} else if !strings.Contains(err.Error(), "is not there") {
			return err
		}
		return nil
	})
}
