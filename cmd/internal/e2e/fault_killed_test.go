package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// A replica whose memory is short is killed. The next one plans with half the memory for configuration: a ServiceEntry
// for which the first one had room is left out, and the others are served. After an orderly end everything is planned.
// Promise: tenants.md#after-a-kill-for-memory
func TestFaultKilledForMemory(t *testing.T) {
	parallel(t)
	const limit, hosts, ports = 48 << 20, 80, 16 // a room of 16 MiB, of which the ServiceEntry takes 10
	dir, state := t.TempDir(), t.TempDir()
	var entry strings.Builder
	entry.WriteString("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: heavy, namespace: shop}\nspec:\n  hosts:\n")
	for i := range hosts {
		fmt.Fprintf(&entry, "  - h%d.example.com\n", i)
	}
	entry.WriteString("  exportTo: ['.']\n  resolution: DNS\n  ports:\n")
	for i := range ports {
		fmt.Fprintf(&entry, "  - {name: http-%d, number: %d, protocol: HTTP}\n", i, 8000+i)
	}
	write(t, dir, "heavy.yaml", entry.String())
	write(t, dir, "light.yaml", "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: light, namespace: shop}\n"+
		"spec: {hosts: [light.example.com], resolution: DNS, ports: [{name: http, number: 80, protocol: HTTP}]}\n")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	start(t, "--roles=ingest", "--config-dir", dir, store, "--tenant-max-exported=0", "--tenant-max-own=0")
	args := []string{"--ctrlz-addr=", "--roles=xds", store, "--state-dir", state}
	heavy, light := xds.Cluster.URL()+" outbound|8000||h0.example.com", xds.Cluster.URL()+" outbound|80||light.example.com"
	d := startProgram(t, navarchd(t), []string{fmt.Sprintf("GOMEMLIMIT=%d", limit), "GOGC=400"}, args...) // garbage up to the limit
	eventually(t, patience, d.ready)
	eventually(t, patience, has(t, d, heavy, light))
	mark := filepath.Join(state, "memory")
	eventually(t, patience, func() error { // its memory is near its limit
		raw, err := os.ReadFile(mark)
		if err == nil && !strings.Contains(string(raw), `"near":true`) {
			err = fmt.Errorf("%s", raw)
		}
		return err
	})
	d.kill()
	d = d.again(t, navarchd(t), args...)
	eventually(t, patience, d.ready)
	eventually(t, patience, has(t, d, light))
	if err := has(t, d, heavy)(); err == nil {
		t.Error("the next one plans as much as the first")
	}
	d.hasProblem(t, "ServiceEntry", "shop/heavy", "left out by this replica")
	d.hasProblem(t, "memory", "killed while its memory was short", "1/2 of the usual bound")
	d.said(t, 1, "the previous process was killed while its memory was short", "kills=1")
	eventually(t, patience, func() error { return d.metric("navarch_memory_kills 1") })
	d.stop(t)
	d = d.again(t, navarchd(t), args...)
	eventually(t, patience, d.ready)
	eventually(t, patience, has(t, d, heavy, light))
}
