package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loopback"
)

// wire is a TCP relay that counts the bytes of a server and can be cut.
type wire struct {
	net.Listener
	target atomic.Pointer[string]
	down   atomic.Int64 // bytes from the server
	conns  chan net.Conn
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, conns: make(chan net.Conn, 64)}
	w.target.Store(&target)
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", *w.target.Load())
			if err != nil {
				near.Close()
				continue
			}
			w.conns <- near
			go func() { io.Copy(far, near); far.Close() }()
			go func() {
				io.Copy(near, io.TeeReader(far, counter{&w.down}))
				near.Close()
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); w.cut() })
	return w
}

func (w *wire) cut() {
	for {
		select {
		case c := <-w.conns:
			c.Close()
		default:
			return
		}
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) { c.n.Add(int64(len(b))); return len(b), nil }

// freePort returns a port that no other caller receives: Envoys share ports (SO_REUSEPORT), so that two tests with one
// port would not fail, but each would answer for the other.
func freePort(t *testing.T) uint32 {
	t.Helper()
	return uint32(loopback.PortFor(t))
}

type envoy struct {
	*envoytest.Envoy
	t *testing.T
}

// startEnvoy runs a real Envoy with an ADS server; api is DELTA_GRPC or GRPC.
func startEnvoy(t *testing.T, ads, api string) *envoy {
	t.Helper()
	return &envoy{envoytest.Start(t, envoytest.ADS(api, ads)), t}
}

func get(url string) (int, string) {
	client := http.Client{Timeout: patience}
	resp, err := client.Get(url)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// inTime fails if Envoy has waited for initial_fetch_timeout (15 s) for a response, or for a dependency of a cluster or
// listener: Envoy counts these timeouts.
func (e *envoy) inTime() {
	e.t.Helper()
	stats, err := envoytest.Stats(e.Admin)
	if err != nil {
		e.t.Fatal(err)
	}
	waits := 0
	for name, n := range stats {
		if strings.HasSuffix(name, ".init_fetch_timeout") {
			if waits++; n != 0 {
				e.t.Errorf("%s is %d: an answer is missing", name, n)
			}
		}
	}
	if waits < 2 { // at least one of listeners and one of clusters
		e.t.Errorf("Envoy counts %d waits", waits)
	}
}

// stat returns the value of a counter or gauge; -1 if it does not exist.
func (e *envoy) stat(name string) int {
	stats, err := envoytest.Stats(e.Admin)
	if n, ok := stats[name]; ok && err == nil {
		return n
	}
	return -1
}

// backend runs a server that responds with its name.
func backend(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func serves(url, want string) func() bool {
	return func() bool { code, body := get(url); return code == 200 && body == want }
}

// smallMesh returns a listener on a port, whose route leads to the cluster "one" with the backend "one".
func smallMesh(t *testing.T) (p *fakePlanner, url string) {
	port := freePort(t)
	return newPlanner(cluster("one"), endpoints("one", backend(t, "one")), listen("in", port, "r1"), route("r1", "one")),
		fmt.Sprintf("http://127.0.0.1:%d/", port)
}

func TestEnvoyStartsAndFollows(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			p, url := smallMesh(t)
			s, addr := start(t, Config{Planner: p})
			e := startEnvoy(t, addr, api)
			e.Live()
			eventually(t, "traffic to one", serves(url, "one"))

			// A changed cluster is warm when its endpoints are sent again: at once, not after initial_fetch_timeout (15 s).
			p.put(cluster("one", func(c *clusterv3.Cluster) { c.ConnectTimeout.Seconds = 2 }))
			eventually(t, "a second warm cluster", func() bool {
				return e.stat("cluster_manager.cluster_modified") == 1 && e.stat("cluster_manager.warming_clusters") == 0
			})
			e.inTime()
			// A new cluster and the route to it are added while requests run: none fails, because of make before break.
			stop, failed := hammer(url)
			p.put(cluster("two"), endpoints("two", backend(t, "two")), route("r1", "two"))
			eventually(t, "traffic to two", serves(url, "two"))
			p.edit(nil, xds.Ref{Type: xds.Cluster, Name: "one"}, xds.Ref{Type: xds.Endpoint, Name: "one"})
			eventually(t, "cluster one removed", func() bool { return e.stat("cluster_manager.cluster_removed") == 1 })
			close(stop)
			if n := <-failed; n != 0 {
				t.Errorf("%d requests failed", n)
			}
			if i := s.Inspect(); len(i) != 1 || len(i[0].Refusals) != 0 || i[0].SotW != (api == "GRPC") {
				t.Errorf("streams: %+v", i)
			}
		})
	}
}

// hammer sends requests until stop is closed, and returns the number of failed ones.
func hammer(url string) (stop chan struct{}, failed chan int) {
	stop, failed = make(chan struct{}), make(chan int, 1)
	go func() {
		bad := 0
		for {
			select {
			case <-stop:
				failed <- bad
				return
			default:
				if code, _ := get(url); code != 200 {
					bad++
				}
			}
		}
	}()
	return stop, failed
}

func TestEnvoyEmptyMesh(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Config{Planner: newPlanner()})
	e := startEnvoy(t, addr, "DELTA_GRPC")
	e.Live()
	e.inTime()
}

func TestEnvoyReconnectIsSentNothing(t *testing.T) {
	t.Parallel()
	p, url := smallMesh(t)
	for i := range 200 {
		name := fmt.Sprintf("c%d", i)
		p.put(cluster(name), endpoints(name, "127.0.0.1:1"))
	}
	_, first := start(t, Config{Planner: p})
	w := newWire(t, first)
	e := startEnvoy(t, w.Addr().String(), "DELTA_GRPC")
	e.Live()
	eventually(t, "traffic", serves(url, "one"))
	cold := w.down.Load()

	var sent atomic.Int64
	// The second server is another replica with the same content.
	second, addr := start(t, Config{Planner: p, Hooks: Hooks{Sent: func(xds.Type, int, int, int) { sent.Add(1) }}})
	w.target.Store(&addr)
	w.cut()
	eventually(t, "resumed on the other replica", func() bool {
		i := second.Inspect()
		return len(i) == 1 && i[0].Types[xds.Route].Subscribed && i[0].Types[xds.Endpoint].Subscribed
	})
	resumed := w.down.Load() - cold
	if sent.Load() != 0 || resumed > 1000 {
		t.Errorf("a proxy that holds everything was sent %d responses, %d bytes (cold start: %d)", sent.Load(), resumed, cold)
	}
	t.Logf("cold start %d bytes, reconnect %d bytes (HTTP/2 frames)", cold, resumed)
	p.put(route("r1", "nowhere"))
	eventually(t, "the new stream is live", func() bool { code, _ := get(url); return code == 503 })
	if n := sent.Load(); n != 1 {
		t.Errorf("%d responses for one changed route", n)
	}
}

// refusal is a resource that Envoy refuses, a good one in the same change, and a correction of the first.
type refusal struct {
	bad, good, fix []*xds.Resource
	culprit        xds.Ref
	applied, fixed func(e *envoy) bool // the good one is active; the bad one is active after its correction
}

func refusedCluster(how func(*clusterv3.Cluster)) refusal {
	return refusal{
		bad:     []*xds.Resource{cluster("bad", how), endpoints("bad", "127.0.0.1:1")},
		good:    []*xds.Resource{cluster("good"), endpoints("good", "127.0.0.1:1")},
		fix:     []*xds.Resource{cluster("bad")},
		culprit: xds.Ref{Type: xds.Cluster, Name: "bad"},
		applied: func(e *envoy) bool { return e.stat("cluster.good.membership_total") == 1 },
		fixed:   func(e *envoy) bool { return e.stat("cluster.bad.membership_total") == 1 },
	}
}

func TestEnvoyRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]refusal{
		"cluster": refusedCluster(func(c *clusterv3.Cluster) { // valid by its constraints; its construction fails
			c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		}),
		// Envoy prints it
		"cluster against its constraints": refusedCluster(func(c *clusterv3.Cluster) { c.ConnectTimeout.Seconds = 0 }),
		// Envoy does not name it
		"cluster that is not named": refusedCluster(func(c *clusterv3.Cluster) { c.ConnectTimeout.Seconds = -1 }),
		"listener": {
			bad: []*xds.Resource{listen("bad", freePort(t), "r1", func(l *listenerv3.Listener) {
				l.FilterChains[0].Filters[0].GetTypedConfig().TypeUrl = "type.googleapis.com/envoy.extensions.filters.network.echo.v3.None"
			})},
			good:    []*xds.Resource{listen("good", freePort(t), "r1")},
			fix:     []*xds.Resource{listen("bad", freePort(t), "r1")},
			culprit: xds.Ref{Type: xds.Listener, Name: "bad"},
			applied: func(e *envoy) bool { return e.stat("listener_manager.total_listeners_active") == 2 },
			fixed:   func(e *envoy) bool { return e.stat("listener_manager.total_listeners_active") == 3 },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, url := smallMesh(t)
			s, addr := start(t, Config{Planner: p})
			e := startEnvoy(t, addr, "DELTA_GRPC")
			e.Live()
			eventually(t, "traffic", serves(url, "one"))
			p.put(append(c.bad, c.good...)...)
			eventually(t, "the culprit in quarantine and named", func() bool { return inQuarantine(s, c.culprit) })
			eventually(t, "the rest applied", func() bool { return c.applied(e) })
			for _, r := range s.Inspect()[0].Refusals {
				t.Logf("Envoy: %s", r.Text)
			}
			if !serves(url, "one")() {
				t.Error("what was good before does not serve")
			}
			p.put(c.fix...)
			eventually(t, "the fix applied", func() bool { return c.fixed(e) })
			eventually(t, "the quarantine lifted", func() bool { return len(s.Inspect()[0].Refusals) == 0 })
		})
	}
}

func inQuarantine(s *Server, culprit xds.Ref) bool {
	for _, i := range s.Inspect() {
		for _, r := range i.Refusals {
			if r.Type == culprit.Type && r.Name == culprit.Name && r.Text != "" {
				return true
			}
		}
	}
	return false
}
