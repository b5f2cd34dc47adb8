package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loopback"
)

// Fault 19: proxies reconnect with true, outdated, forged, and without claims. They end with equal resources. With true
// claims they receive nothing, with outdated ones the difference, and otherwise everything.
func TestFaultClaims(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 50, 300, "services"), sized(t, 60, 2000, "proxies")
	d, dir := alone(t, n)
	wire := connect(t, d.secure)
	f := fleet(t, proxies, sim.Config{Addrs: []string{wire.address}})
	all := f.Stats().Total().Resources / uint64(proxies)

	got := resumed(t, f, proxies, func() { f.Reconnect(sim.All, sim.Reconnect{Now: true}) }).Total()
	if got.Resources+got.Removed > 0 {
		t.Errorf("true claims: %d resources and %d removals were sent", got.Resources, got.Removed)
	}
	eventually(t, patience, func() error {
		page, err := get(d.http, "/debug/syncz")
		if n := strings.Count(page, `"cluster_acked": "resumed"`); err == nil && (n != proxies || strings.Contains(page, `_synced": false`)) {
			err = fmt.Errorf("/debug/syncz: %d of %d proxies resumed, or not all that resumed are in sync", n, proxies)
		}
		return err
	})
	got = resumed(t, f, proxies, func() {
		wire.set(rule{refuse: true})
		wire.drop()
		write(t, dir, "town.yaml", town(5, n+5, 2)) // five services go, five come, all routes change
		eventually(t, patience, whole(t, d, n, 2))
		wire.set(rule{})
	}).Total()
	eventually(t, patience, func() error {
		if differ := f.Stats().Types["CDS"].Removed; differ != uint64(5*proxies) {
			return fmt.Errorf("%d clusters were removed, want 5 of each of %d", differ, proxies)
		}
		return nil
	})
	if most := uint64(proxies * (3*5 + 2)); got.Resources > most { // clusters, endpoints, listeners at most; routes
		t.Errorf("claims that are out of date: %d resources were sent, want at most %d", got.Resources, most)
	}
	for what, r := range map[string]sim.Reconnect{"forged": {Forge: true, Now: true}, "none": {Cold: true, Now: true}} {
		before := f.Stats()
		resumed(t, f, proxies, func() { f.Reconnect(sim.All, r) })
		eventually(t, patience, func() error {
			if got := f.Stats().Since(before).Total(); got.Resources != all*uint64(proxies) || got.Removed > 0 {
				return fmt.Errorf("%s: %d resources and %d removals were sent, want %d", what, got.Resources, got.Removed, all*uint64(proxies))
			}
			return nil
		})
	}
	overlong(t, d)
	unharmed(t, f)
}

// overlong claims invented names and versions of some megabytes: they are removed, and everything is sent.
func overlong(t *testing.T, d *daemon) {
	t.Helper()
	claims := map[string]string{strings.Repeat("n", 1<<20): "1", "outbound|80||s010.town.svc.cluster.local": strings.Repeat("v", 1<<20)}
	for i := range 10_000 {
		claims[fmt.Sprintf("outbound|80||nobody-%d.town.svc.cluster.local", i)] = "1"
	}
	raw := encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: node("town", "liar", "10.1.9.6"), TypeUrl: xds.Cluster.URL(),
		InitialResourceVersions: claims})
	answer, err := say(t, d.grpc, deltaMethod, raw)
	if err != nil {
		t.Errorf("claims of %d bytes: %v", len(raw), err)
		return
	}
	res := &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(answer, res); err != nil {
		t.Error(err)
	}
	if len(res.Resources) < 50 {
		t.Errorf("%d clusters were sent", len(res.Resources))
	}
}

// liar is a relay between Envoy and a replica that falsifies Envoy's claims after a reconnect.
type liar struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	to      *grpc.ClientConn
	claims  func(typeURL string, claims map[string]string)
	streams atomic.Int64
	away    atomic.Bool // new streams are refused

	mu   sync.Mutex
	ends map[context.Context]context.CancelFunc
}

func (l *liar) DeltaAggregatedResources(down discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	l.mu.Lock()
	if l.away.Load() {
		l.mu.Unlock()
		return status.Error(codes.Unavailable, "away")
	}
	l.ends[ctx] = cancel
	l.mu.Unlock()
	l.streams.Add(1)
	up, err := discoveryv3.NewAggregatedDiscoveryServiceClient(l.to).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	go func() {
		defer cancel()
		for {
			r, err := down.Recv()
			if err != nil {
				return
			}
			if len(r.InitialResourceVersions) > 0 {
				l.claims(r.TypeUrl, r.InitialResourceVersions)
			}
			if up.Send(r) != nil {
				return
			}
		}
	}()
	for {
		r, err := up.Recv()
		if err != nil {
			return err
		}
		if err := down.Send(r); err != nil {
			return err
		}
	}
}

// cut ends every stream, and refuses new ones until away is false.
func (l *liar) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away.Store(true)
	for ctx, end := range l.ends {
		end()
		delete(l.ends, ctx)
	}
}

// frontEnvoy returns the bootstrap of an Envoy with one listener on a loopback port, which receives its routes and
// clusters from a server.
func frontEnvoy(t *testing.T, ads, port string) envoytest.Bootstrap {
	t.Helper()
	b := envoytest.ADS("DELTA_GRPC", ads)
	b["node"] = map[string]any{"id": "sidecar~10.1.9.5~front.shop~shop.svc.cluster.local", "cluster": "front", "metadata": map[string]any{"NAMESPACE": "shop"}}
	b["static_resources"].(map[string]any)["listeners"] = envoytest.JSON(t, fmt.Appendf(nil, `{"all":[
{"name":"front","address":{"socket_address":{"address":"127.0.0.1","port_value":%s}},
 "filter_chains":[{"filters":[{"name":"http","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
  "stat_prefix":"front","rds":{"route_config_name":"80","config_source":{"ads":{},"resource_api_version":"V3"}},
  "http_filters":[{"name":"router","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}]}`, port))["all"]
	delete(b["dynamic_resources"].(map[string]any), "lds_config")
	return b
}

const oneBackend = `
apiVersion: v1
kind: Service
metadata: {name: back, namespace: shop}
spec:
  clusterIP: 10.96.0.20
  selector: {app: back}
  ports: [{name: http, port: 80, targetPort: %[1]s}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: back-1, namespace: shop, labels: {kubernetes.io/service-name: back}}
addressType: IPv4
ports: [{name: http, port: %[1]s}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
`

// lies are falsifications of Envoy's claims.
var lies = []func(string, map[string]string){
	func(string, map[string]string) {},
	func(_ string, claims map[string]string) {
		for name := range claims {
			claims[name] = "forged"
		}
	},
	func(_ string, claims map[string]string) { clear(claims) },
	func(typeURL string, claims map[string]string) {
		if typeURL == xds.Endpoint.URL() {
			clear(claims)
		}
	},
	func(_ string, claims map[string]string) { claims["outbound|80||gone.shop.svc.cluster.local"] = "1" },
	func(_ string, claims map[string]string) {
		claims[strings.Repeat("n", 1<<20)] = strings.Repeat("v", 1<<20)
	},
}

// callBack calls the service through Envoy, and returns the backend that has answered.
func callBack(ctx context.Context, front string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+front, nil)
	if err != nil {
		return "", err
	}
	req.Host = "back.shop.svc.cluster.local"
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200q", res.Status, body)
	}
	return string(body), err
}

// Fault 19 with a real Envoy under traffic: its streams end repeatedly, its endpoints move meanwhile, and its claims on
// the next stream are true, forged, forgotten (also those of endpoints), outdated or far too long. No request fails,
// and Envoy gets the endpoints' new address each time.
func TestFaultClaimsOfEnvoy(t *testing.T) {
	parallel(t)
	var ports [2]string
	names := [2]string{"even", "odd"}
	for i, name := range names {
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
		t.Cleanup(backend.Close)
		_, ports[i], _ = net.SplitHostPort(backend.Listener.Addr().String())
	}
	dir := folder(t)
	write(t, dir, "back.yaml", fmt.Sprintf(oneBackend, ports[0]))
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir())
	eventually(t, patience, d.ready)

	var lie atomic.Int64
	l := &liar{ends: map[context.Context]context.CancelFunc{}, claims: func(u string, c map[string]string) { lies[lie.Load()](u, c) }}
	address := l.serve(t, d.grpc)
	front := loopback.For(t)
	_, frontPort, _ := net.SplitHostPort(front)
	envoytest.Start(t, frontEnvoy(t, address, frontPort))
	eventually(t, patience, func() error { _, err := callBack(t.Context(), front); return err })

	for i := range lies {
		edition := i + 1
		lie.Store(int64(i))
		call := func() string {
			who, err := callBack(t.Context(), front)
			if err != nil {
				t.Fatalf("lie %d: %v", i, err)
			}
			return who
		}
		l.cut()
		port := ports[edition%2]
		write(t, dir, "back.yaml", fmt.Sprintf(oneBackend, port))
		eventually(t, patience, func() error { return placed(t, d, port) })
		call()
		l.away.Store(false)
		eventually(t, patience, func() error {
			if who := call(); who != names[edition%2] {
				return fmt.Errorf("lie %d: %s answers still", i, who)
			}
			return nil
		})
		for range 20 {
			call()
		}
	}
	if n := l.streams.Load(); n <= int64(len(lies)) {
		t.Errorf("%d streams only", n)
	}
}

// placed returns an error until a replica has the backend's endpoint at a port.
func placed(t *testing.T, d *daemon, port string) error {
	t.Helper()
	got, err := everything(t.Context(), d.grpc, node("shop", "front", "10.1.9.6"))
	if err != nil {
		return err
	}
	want, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	for name, body := range got {
		assignment := &endpointv3.ClusterLoadAssignment{}
		if !strings.Contains(name, "ClusterLoadAssignment outbound|80||back.") || proto.Unmarshal(body, assignment) != nil {
			continue
		}
		for _, locality := range assignment.Endpoints {
			for _, e := range locality.LbEndpoints {
				if e.GetEndpoint().GetAddress().GetSocketAddress().GetPortValue() == uint32(want) {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("no endpoint at port %s", port)
}

// serve listens on loopback until the test ends.
func (l *liar) serve(t *testing.T, to string) string {
	t.Helper()
	var err error
	if l.to, err = grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.to.Close() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, l)
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}
