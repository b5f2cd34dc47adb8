package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// removalsOf runs navarchctl removals against the pages of a process.
func removalsOf(t *testing.T, d *daemon) func(args ...string) (string, error) {
	return func(args ...string) (string, error) {
		out, err := exec.Command(binary(t, "navarchctl"), append(append([]string{"removals"}, args...), "--server", d.http)...).CombinedOutput()
		return string(out), err
	}
}

// heldID waits until a removal is held whose list has these texts, and returns its ID.
func heldID(t *testing.T, removals func(args ...string) (string, error), has ...string) (id string) {
	t.Helper()
	eventually(t, patience, func() error {
		out, err := removals("list")
		m := regexp.MustCompile(`(?m)^([0-9a-f]{10}):$`).FindStringSubmatch(out)
		if err != nil || m == nil {
			return fmt.Errorf("%v: %s", err, out)
		}
		for _, text := range has {
			if !strings.Contains(out, text) {
				return fmt.Errorf("no %q: %s", text, out)
			}
		}
		id = m[1]
		return nil
	})
	return id
}

// vanish removes all of the folder.
func vanish(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"services.yaml", "routes.yaml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// withoutWeb returns a check that a client receives no cluster of the service.
func withoutWeb(t *testing.T, d *daemon) func() error {
	return func() error {
		if err := has(t, d, webCluster)(); err == nil || !strings.Contains(err.Error(), "is not there") {
			return fmt.Errorf("the service is still there: %w", err)
		}
		return nil
	}
}

// The removal of a vanished folder's objects is held, shown, and accepted with navarchctl, without a restart. The ID
// identifies exactly these objects, and can be accepted once. After a restart the next leader holds the previous
// leader's removal by the same ID, and it can be accepted too.
// Promise: security-tenants.md#remove-many-objects
func TestHeldRemovalIsAccepted(t *testing.T) {
	parallel(t)
	dir, data := folder(t), t.TempDir()
	d := start(t, "--config-dir", dir, "--data-dir", data)
	ctl := removalsOf(t, d)
	eventually(t, patience, has(t, d, webCluster, dbCluster))
	refused := func(id, why string) {
		t.Helper()
		if out, err := ctl("accept", id); err == nil || !strings.Contains(out, why) {
			t.Errorf("%s: %v %s", why, err, out)
		}
	}
	refused("0123456789", "no held removal has the ID")
	vanish(t, dir)
	first := heldID(t, ctl, "Service shop/web", "VirtualService shop/web", "when it is accepted")
	d.hasProblem(t, "navarchctl removals accept "+first)
	if err := d.metric(`navarch_removals_held{kind="Service"} 2`); err != nil {
		t.Error(err)
	}
	refused("0123456789", "no held removal has the ID")
	if err := has(t, d, webCluster, dbCluster)(); err != nil {
		t.Errorf("what is held: %v", err)
	}
	out, err := ctl("accept", first)
	if err != nil || !strings.Contains(out, "4 objects are removed (EndpointSlice 1, Service 2, VirtualService 1)") {
		t.Errorf("%v: %s", err, out)
	}
	eventually(t, patience, withoutWeb(t, d))
	refused(first, "no held removal has the ID")
	d.said(t, 1, "level=WARN", "a held removal was accepted", "removal="+first, `user="this machine"`, "objects=4")

	write(t, dir, "services.yaml", services)
	write(t, dir, "routes.yaml", routes(1))
	eventually(t, patience, has(t, d, webCluster, dbCluster))
	vanish(t, dir)
	heldID(t, ctl, "Service shop/web", "VirtualService shop/web")
	d.stop(t)
	d = start(t, "--config-dir", dir, "--data-dir", data)
	ctl = removalsOf(t, d)
	eventually(t, patience, has(t, d, webCluster, dbCluster))
	second := heldID(t, ctl, "Service shop/web", "VirtualService shop/web") // by the next leader
	if out, err := ctl("accept", second); err != nil {
		t.Errorf("of the next leader: %v %s", err, out)
	}
	eventually(t, patience, withoutWeb(t, d))
	eventually(t, patience, func() error { // every process learns of it from etcd
		out, err := ctl("list")
		if err == nil && !strings.Contains(out, "nothing is held") {
			err = errors.New(out)
		}
		return err
	})
}

// Held removals end by themselves: most objects of a kind in a namespace of the folder are removed once their time has
// passed. The removal of a policy waits for an operator's decision.
func TestHeldRemovalEnds(t *testing.T) {
	parallel(t)
	dir := folder(t)
	policies := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p%d, namespace: shop}\nspec: {rules: [{}]}\n---\n", i)
		}
		return text
	}
	entries := func(from, n int) (text string) {
		for i := from; i < from+n; i++ {
			text += fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e%d, namespace: shop}\n"+
				"spec: {hosts: [e%[1]d.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n---\n", i)
		}
		return text
	}
	const entry = "type.googleapis.com/envoy.config.cluster.v3.Cluster outbound|80||e0.example.com"
	write(t, dir, "policies.yaml", policies(6))
	write(t, dir, "entries.yaml", entries(0, 6))
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir(), "--held-removals-end-after", "3s")
	eventually(t, patience, has(t, d, webCluster, entry))
	write(t, dir, "policies.yaml", policies(1))
	write(t, dir, "entries.yaml", entries(5, 1))
	ctl := removalsOf(t, d)
	heldID(t, ctl, "AuthorizationPolicy shop/p1", "ServiceEntry shop/e0")
	if err := has(t, d, entry)(); err != nil {
		t.Errorf("what is held: %v", err)
	}
	d.said(t, 1, "a removal was held for its time", `kinds="ServiceEntry 5"`)
	eventually(t, patience, func() error {
		if err := has(t, d, entry)(); err == nil || !strings.Contains(err.Error(), "is not there") {
			return fmt.Errorf("%s is still there: %w", entry, err)
		}
		return nil
	})
	eventually(t, patience, func() error {
		out, err := ctl("list")
		if err != nil || !strings.Contains(out, "AuthorizationPolicy 5") || strings.Contains(out, "ServiceEntry") || !strings.Contains(out, "when it is accepted") {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
}
