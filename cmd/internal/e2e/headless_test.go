package e2e

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
)

// headlessMesh returns a headless Service with two endpoints on the machine beside the Pod, and one further service for
// each edit. The listener of that service shows that the edit has reached Envoy.
func headlessMesh(annotations, endpoints string, edits int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop, annotations: {%s}}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: tcp-db, port: 9000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: tcp-db, port: 9000}]
endpoints: [%s]
`, annotations, endpoints)
	for i := range edits {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: edit-%d, namespace: shop}
spec: {clusterIP: 10.96.0.%[1]d, ports: [{name: tcp, port: 7000}]}
`, i+1)
	}
	return b.String()
}

// endpoint returns an endpoint of that Service as YAML.
func endpoint(address string, ready bool) string {
	return fmt.Sprintf("{addresses: [%s], conditions: {ready: %v}}", address, ready)
}

// An established connection to an endpoint of a headless Service survives when the endpoint becomes unready, because
// Envoy drains no listener then, and when another endpoint is removed. With merged listeners Envoy replaces the chains
// of the one listener in place, and drains only that of the removed endpoint.
func TestHeadlessConnectionsStand(t *testing.T) {
	parallel(t)
	if inOwnNetwork(t) {
		return
	}
	other, dial := wire(t), asApp(t)
	echo := listenAt(t, other, 9000)
	go func() {
		for c, err := echo.Accept(); err == nil; c, err = echo.Accept() {
			go io.Copy(c, c)
		}
	}()
	dir, data := t.TempDir(), t.TempDir()
	write(t, dir, "mesh.yaml", headlessMesh("", endpoint(sentTo, true)+", "+endpoint(byName, true), 1))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	p := runAgentWith(t, d, data, filepath.Join(data, "root-cert.pem"), "web", podAddress, []string{"ISTIO_META_INTERCEPTION_MODE=REDIRECT"})
	stats := func() map[string]int {
		all, err := envoytest.Stats(p.admin)
		if err != nil {
			return nil
		}
		return all
	}
	const draining = "listener_manager.total_filter_chains_draining"
	const removed, inPlace, active = "listener_manager.listener_removed", "listener_manager.listener_in_place_updated", "listener_manager.total_listeners_active"
	shows := func(want map[string]int) {
		t.Helper()
		eventually(t, patience, func() error {
			got := stats()
			for name, n := range want {
				if got[name] != n {
					return fmt.Errorf("%s is %d, want %d", name, got[name], n)
				}
			}
			return nil
		})
	}
	const fixed = 3 // virtualInbound, virtualOutbound, and the one of statistics
	shows(map[string]int{active: fixed + 2 + 1})
	var conns []net.Conn
	for _, address := range []string{sentTo, byName} {
		c, err := dial(t.Context(), "tcp", address+":9000")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	stand := func(when string, conns ...net.Conn) {
		t.Helper()
		for _, c := range conns {
			said := make([]byte, 4)
			if _, err := c.Write([]byte("here")); err != nil {
				t.Errorf("%s: %s: %v", when, c.RemoteAddr(), err)
			} else if _, err := io.ReadFull(c, said); err != nil || string(said) != "here" {
				t.Errorf("%s: %s: %q, %v", when, c.RemoteAddr(), said, err)
			}
		}
	}
	stand("at first", conns...)
	write(t, dir, "mesh.yaml", headlessMesh("", endpoint(sentTo, false)+", "+endpoint(byName, true), 2))
	shows(map[string]int{active: fixed + 2 + 2, removed: 0})
	stand("one is unready", conns...)
	write(t, dir, "mesh.yaml", headlessMesh("", endpoint(sentTo, false), 3))
	shows(map[string]int{active: fixed + 1 + 3, removed: 1})
	stand("the other one vanished", conns[0])

	write(t, dir, "mesh.yaml", headlessMesh("navarch.io/headless-listeners: merged", endpoint(sentTo, true)+", "+endpoint(byName, true), 4))
	shows(map[string]int{active: fixed + 1 + 4, removed: 2, inPlace: 0})
	again, err := dial(t.Context(), "tcp", sentTo+":9000")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	stand("merged", again)
	write(t, dir, "mesh.yaml", headlessMesh("navarch.io/headless-listeners: merged", endpoint(sentTo, false), 5))
	shows(map[string]int{active: fixed + 1 + 5, removed: 2, inPlace: 1, draining: 1})
	stand("merged, and the other one vanished", again)
}
