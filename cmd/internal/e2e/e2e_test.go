// Package e2e runs navarchd as operators do: several processes over one etcd, killed, stopped and replaced.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/kv/kvtest"
)

const services = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.10
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec:
  clusterIP: 10.96.0.11
  selector: {app: db}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: tcp, port: 9000}]
endpoints:
- {addresses: [10.1.0.1], conditions: {ready: true}}
- {addresses: [10.1.0.2], conditions: {ready: true}}
`

// routes returns a VirtualService whose timeout identifies the edition.
func routes(seconds int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - timeout: %ds
    route: [{destination: {host: web}}]
`, seconds)
}

// folder returns a new configuration folder with the services and the first edition of the routes.
func folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "services.yaml", services)
	write(t, dir, "routes.yaml", routes(1))
	return dir
}

// write replaces a file as an editor does: at once.
func write(t testing.TB, dir, name, content string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

const webRoute = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration 80"

// serves returns a check that a replica sends a client the edition with this timeout.
func serves(t *testing.T, d *daemon, seconds int) func() error {
	return func() error {
		got, err := everything(t.Context(), d.grpc, node("shop", "client", "10.1.9.9"))
		if err != nil {
			return err
		}
		// google.protobuf.Duration{seconds}: the RouteAction's timeout is field 8.
		if !strings.Contains(string(got[webRoute]), string([]byte{8<<3 | 2, 2, 8, byte(seconds)})) {
			return fmt.Errorf("no timeout of %d s in route 80", seconds)
		}
		return nil
	}
}

// Three replicas, each in its own process, answer alike, byte for byte. Two followed the watch through an edit; the
// third starts after the history was compacted, and lists.
func TestReplicasAnswerAlike(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir := folder(t)
	store := "--etcd-endpoints=" + etcd.Endpoint()
	ingest := start(t, "--roles=ingest", "--config-dir", dir, store)
	first, second := start(t, "--roles=xds", store), start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, first, 1))
	write(t, dir, "routes.yaml", routes(2))
	eventually(t, patience, serves(t, first, 2))
	eventually(t, patience, serves(t, second, 2))
	stat, err := etcd.Stat(t.Context())
	if err == nil {
		err = etcd.Compact(t.Context(), stat.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	third := start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, third, 2))

	client := node("shop", "client", "10.1.9.9")
	var answers []map[string][]byte
	for _, d := range []*daemon{first, second, third} {
		got, err := everything(t.Context(), d.grpc, client)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, got)
	}
	same(t, answers[0], answers[1])
	same(t, answers[0], answers[2])
	if err := ingest.ready(); err != nil {
		t.Errorf("the ingester: %v", err)
	}
}

// leading returns an error unless a process is the elected ingester.
func (d *daemon) leading() error {
	page, err := get(d.monitoring, "/metrics")
	if err != nil {
		return err
	}
	if !strings.Contains(page, "\nnavarch_leader 1\n") {
		return fmt.Errorf("%s does not lead", d.http)
	}
	return nil
}

// Of two servers on one data directory the second one fails to start.
func TestDataDirectoryIsLocked(t *testing.T) {
	parallel(t)
	dir, data := folder(t), t.TempDir()
	first := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, first.ready)
	second := start(t, "--config-dir", dir, "--data-dir", data)
	select {
	case <-second.exited:
	case <-time.After(patience):
		t.Fatal("the second server is still there")
	}
	if second.cmd.ProcessState.Success() || !strings.Contains(second.log.String(), "one data directory serves one process") {
		t.Errorf("the second server ended with %v and said:\n%s", second.cmd.ProcessState, second.log)
	}
}

// An argument that names something nonexistent is reported with the flag's name.
func TestFlagsAreExplained(t *testing.T) {
	parallel(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--roles=admit", "--etcd-endpoints", "x"}, "role admit needs an address (--https-addr) and a certificate"},
		{[]string{"--roles=ca", "--etcd-endpoints", "x"}, "--kek is needed for role ca"},
		{[]string{"--roles=cook", "--data-dir", "x"}, `--roles: unknown role "cook"`},
		{[]string{"--roles=xds"}, "--data-dir (embedded etcd) or --etcd-endpoints"},
		{[]string{"--data-dir", "x"}, "--config-dir is needed"},
		{[]string{"--roles=xds", "--data-dir", "x", "--tls-cert", "c"}, "--tls-cert and --tls-key go together"},
		{[]string{"--roles=xds", "--etcd-endpoints", "x", "--tls-cert", "c", "--tls-key", "k"}, "this process can verify none: give it --tls-client-ca"},
		{[]string{"--roles=xds", "--etcd-endpoints", "x", "--tls-client-ca", "c"}, "--tls-client-ca is for the secure address"},
	} {
		d := start(t, c.args...)
		<-d.exited
		if d.cmd.ProcessState.Success() || !strings.Contains(d.log.String(), c.want) {
			t.Errorf("%v: ended with %v and said:\n%s", c.args, d.cmd.ProcessState, d.log)
		}
	}
}
