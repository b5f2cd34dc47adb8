package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// warmingMesh is a process whose sidecars each have a namespace of their own, and see nothing of the others.
type warmingMesh struct {
	daemon *daemon
	dir    string
	data   string
	made   atomic.Int64
}

func newWarmingMesh(t *testing.T) *warmingMesh {
	t.Helper()
	m := &warmingMesh{dir: folder(t), data: t.TempDir()}
	m.daemon = start(t, "--config-dir", m.dir, "--data-dir", m.data, "--allow-empty") // cells remove what they wrote
	eventually(t, patience, m.daemon.ready)
	return m
}

// warmed is an Envoy with traffic to a service, at which a cluster warms.
type warmed struct {
	mesh                *warmingMesh
	kind, namespace, at string // at: its net
	envoy               *envoytest.Envoy
	link                *link
	flow                *traffic
}

// sidecar starts an Envoy and its traffic.
func (m *warmingMesh) sidecar(t *testing.T, binary, api, kind string) *warmed {
	t.Helper()
	w := &warmed{mesh: m, kind: kind, namespace: fmt.Sprintf("n%d", m.made.Add(1)), at: loopback.NetFor(t), link: connect(t, m.daemon.grpc)}
	backEnd(t, w.at)
	w.silent(t)
	w.write(t, "server.yaml", strings.Replace(ofNamespace(oneServer), `hosts: ["./*"]}]`, `hosts: ["./*"]}, {hosts: ["./*"]}]`, 1))
	w.fresh(t, 1)
	n := node(w.namespace, "web", w.at+".9")
	n.Cluster = "web." + w.namespace
	raw, err := protojson.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	b := envoytest.ADS(api, w.link.address)
	b["node"] = json.RawMessage(raw)
	w.envoy = envoytest.StartVersion(t, binary, b)
	w.flow = flowTo(t, w.at, "server."+w.namespace+".svc.cluster.local", 10*time.Millisecond)
	eventually(t, patience, w.routed(1))
	return w
}

// silent starts a TCP server that accepts and answers nothing, NET.3:9999, and a DNS server that drops all questions,
// NET.4:53053. It counts them.
func (w *warmed) silent(t *testing.T) (questions *atomic.Int64) {
	t.Helper()
	server, err := net.Listen("tcp", w.at+".3:9999")
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := net.ListenPacket("udp", w.at+".4:53053")
	if err != nil {
		t.Fatal(err)
	}
	questions = &atomic.Int64{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, _, err := resolver.ReadFrom(make([]byte, 512)); err != nil {
				return
			}
			questions.Add(1)
		}
	})
	t.Cleanup(func() { server.Close(); resolver.Close(); wg.Wait() })
	return questions
}

// ofNamespace replaces namespace shop, and the net of its objects, by what write puts in.
func ofNamespace(objects string) string {
	return strings.NewReplacer("namespace: shop", "namespace: SPACE", someNet, "NET").Replace(objects)
}

// path returns the path of a file of the namespace.
func (w *warmed) path(name string) string { return w.namespace + "-" + name }

// write writes a file of the namespace; SPACE and NET in it are the namespace and its net.
func (w *warmed) write(t *testing.T, name, content string) {
	t.Helper()
	write(t, w.mesh.dir, w.path(name), strings.NewReplacer("SPACE", w.namespace, "NET.", w.at+".").Replace(content))
}

// cause writes an edition of the cluster that warms.
func (w *warmed) cause(t *testing.T, edition int) {
	t.Helper()
	w.write(t, "cause.yaml", strings.ReplaceAll(warmingKinds[w.kind].objects, "EDITION", fmt.Sprint(edition)))
}

// remove deletes the file; repeated calls do nothing.
func (w *warmed) remove(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(w.mesh.dir, w.path("cause.yaml"))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// deny writes one more policy.
func (w *warmed) deny(t *testing.T, n int) {
	t.Helper()
	w.write(t, fmt.Sprintf("deny-%d.yaml", n), fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny-%d, namespace: SPACE}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/denied-%d]}}]}]}
`, n, n))
}

// fresh writes an edition of the routes, which lead to a service of that edition alone, which is new.
func (w *warmed) fresh(t *testing.T, edition int) {
	t.Helper()
	service, _, _ := strings.Cut(oneServer, "---\napiVersion: networking.istio.io/v1\nkind: Sidecar")
	name := fmt.Sprintf("fresh-%d", edition)
	service = strings.ReplaceAll(service, "name: server", "name: "+name)
	routes := strings.ReplaceAll(marked(edition), "{host: server}", "{host: "+name+"}")
	w.write(t, "routes.yaml", ofNamespace(service+"---"+routes))
}

// timed returns the time from an act until a check returns nil.
func (w *warmed) timed(t *testing.T, act func(), check func() error) time.Duration {
	t.Helper()
	act()
	began := time.Now()
	eventually(t, patience, check)
	return time.Since(began)
}

// stat returns a check that a statistic of Envoy is at least n, or exactly 0 for n = 0.
func (w *warmed) stat(name string, n int) func() error {
	name = strings.ReplaceAll(name, "SPACE", w.namespace)
	return func() error {
		stats, err := envoytest.Stats(w.envoy.Admin)
		if got := stats[name]; err == nil && (got < n || n == 0 && got > 0) {
			err = fmt.Errorf("%s is %d, want %d", name, got, n)
		}
		return err
	}
}

// routed returns a check that answers come by an edition of the routes.
func (w *warmed) routed(edition int) func() error {
	return func() error {
		if now := w.flow.newest(); now != edition {
			return fmt.Errorf("edition %d, want %d", now, edition)
		}
		return nil
	}
}

// refusal returns a check that the control plane knows of a cluster's refusal.
func (w *warmed) refusal(cluster string) func() error {
	return func() error {
		page, err := get(w.mesh.daemon.http, "/debug/syncz")
		if err == nil && !strings.Contains(page, `"`+cluster+`"`) {
			err = fmt.Errorf("no refusal of %s in %s", cluster, page)
		}
		return err
	}
}

// denies returns a check that a policy is in the workload's inbound listener.
func (w *warmed) denies(n int) func() error {
	return func() error {
		page, err := w.envoy.Get("/config_dump?resource=dynamic_listeners&mask=name,active_state")
		if err != nil {
			return err
		}
		var dump struct {
			Configs []struct {
				Name        string
				ActiveState json.RawMessage `json:"active_state"`
			}
		}
		if err := json.Unmarshal([]byte(page), &dump); err != nil {
			return err
		}
		for _, l := range dump.Configs {
			if l.Name == "virtualInbound" && strings.Contains(string(l.ActiveState), fmt.Sprintf(`"/denied-%d"`, n)) {
				return nil
			}
		}
		return fmt.Errorf("virtualInbound has no policy deny-%d", n)
	}
}
