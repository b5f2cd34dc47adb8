package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tenant at its limit gets an error with its name. Its new object has no effect, before and after a restart, and is
// accepted automatically when another is deleted. A neighbour is not affected.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestTenantBudget(t *testing.T) {
	parallel(t)
	dir, data := folder(t), t.TempDir()
	args := []string{"--config-dir", dir, "--data-dir", data, "--tenant-max-objects", "4"}
	entry := func(namespace, name string) string {
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: %s}\nspec: {hosts: [%s.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n", name, namespace, name)
	}
	d := start(t, args...)
	eventually(t, patience, serves(t, d, 1))
	was, err := d.problems()
	if err != nil || len(was) > 0 {
		t.Fatalf("shop has %v already: %v", was, err)
	}
	write(t, dir, "b.yaml", entry("shop", "bb"))
	write(t, dir, "x.yaml", entry("other", "xx"))
	d.hasProblem(t, `tenant "shop"`, "4 of 4 objects", "Severity:warning")
	write(t, dir, "a.yaml", entry("shop", "aa"))
	refused := []string{"ServiceEntry shop/aa", "a.yaml", `tenant "shop" would have 5 objects, and 4 are allowed`, "the object is not in effect"}
	d.hasProblem(t, refused...)
	cluster := func(name string) string {
		return strings.Replace(webCluster, "web.shop.svc.cluster.local", name+".example", 1)
	}
	eventually(t, patience, has(t, d, cluster("bb"), cluster("xx")))
	if has(t, d, cluster("aa"))() == nil {
		t.Error("a refused object is served")
	}
	page, err := get(d.monitoring, "/metrics")
	if err != nil || !strings.Contains(page, `navarch_tenant_objects{tenant="shop"} 4`) || strings.Contains(page, `tenant="other"`) ||
		!strings.Contains(page, "navarch_tenant_refused_objects 1") {
		t.Errorf("metrics: %v\n%s", err, page)
	}

	d.stop(t)
	d = start(t, args...)
	eventually(t, patience, has(t, d, cluster("bb"), cluster("xx")))
	d.hasProblem(t, refused...)
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, has(t, d, cluster("aa"), cluster("xx")))
}
