package relay

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// envoyBinary is the real proxy that this test needs.
func envoyBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("NAVARCH_ENVOY"); path != "" {
		return path
	}
	path, err := filepath.Abs("../../.tools/bin/envoy")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("no Envoy: run `make tools`, or set NAVARCH_ENVOY (%v)", err)
	}
	return path
}

var lastPort atomic.Uint32

// freeAddr has a port that nobody else is given: Envoys share ports (SO_REUSEPORT), so that two tests with one port would
// not fail but answer for each other. It is below the range that the kernel gives to clients.
func freeAddr(t *testing.T) string {
	t.Helper()
	lastPort.CompareAndSwap(0, rand.Uint32N(15000)+1)
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 16000+lastPort.Add(1)%16000)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func socketAddress(t *testing.T, hostPort string) *corev3.Address {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", hostPort)
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: a.IP.String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port)},
	}}}
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// oneService fills a mesh with a listener, its routes by RDS, a cluster and its endpoints by EDS.
func oneService(t *testing.T, m *mesh, listener, backend string) {
	t.Helper()
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3}
	m.set(t, typeCDS, "app", "c1", &clusterv3.Cluster{
		Name: "app", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}, ConnectTimeout: durationpb.New(time.Second),
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads},
	})
	setBackend(t, m, backend)
	m.set(t, typeLDS, "in", "l1", &listenerv3.Listener{
		Name: "in", Address: socketAddress(t, listener),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, &hcmv3.HttpConnectionManager{
			StatPrefix:     "in",
			HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}}},
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "r", ConfigSource: ads}},
		})}}}}},
	})
	m.set(t, typeRDS, "r", "r1", &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "app"}}},
	}}}}})
}

func setBackend(t *testing.T, m *mesh, backend string) {
	t.Helper()
	m.set(t, typeEDS, "app", "e-"+backend, &endpointv3.ClusterLoadAssignment{ClusterName: "app", Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(t, backend)}}}},
	}}})
}

// startEnvoy runs a real Envoy that speaks delta ADS to the socket, and returns the URL of its admin server.
func startEnvoy(t *testing.T, socket string) string {
	t.Helper()
	admin := freeAddr(t)
	_, port, _ := net.SplitHostPort(admin)
	config := fmt.Sprintf(`{"node":{"id":"sidecar~127.0.0.1~web.default~default.svc.cluster.local","cluster":"web"},
"admin":{"address":{"socket_address":{"address":"127.0.0.1","port_value":%s}}},
"dynamic_resources":{"ads_config":{"api_type":"DELTA_GRPC","transport_api_version":"V3","set_node_on_first_message_only":true,
 "grpc_services":[{"envoy_grpc":{"cluster_name":"xds","retry_policy":{"retry_back_off":{"base_interval":"0.05s","max_interval":"0.2s"}}}}]},
 "cds_config":{"ads":{},"resource_api_version":"V3"},"lds_config":{"ads":{},"resource_api_version":"V3"}},
"static_resources":{"clusters":[{"name":"xds","connect_timeout":"1s","type":"STATIC",
 "typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":{"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions","explicit_http_config":{"http2_protocol_options":{}}}},
 "load_assignment":{"cluster_name":"xds","endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"pipe":{"path":%q}}}}]}]}}]}}`, port, socket)
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(envoyBinary(t), "-c", file, "--concurrency", "1", "--disable-hot-restart", "-l", "error")
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return "http://" + admin
}

func fetch(url string) (string, error) {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// envoyStats are the counters that tell whether Envoy noticed anything.
func envoyStats(t *testing.T, admin string) map[string]int {
	t.Helper()
	body, err := fetch(admin + "/stats?format=json")
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Stats []struct {
			Name  string
			Value any // a text where it is no counter or gauge
		}
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, s := range page.Stats {
		value, is := s.Value.(float64)
		switch {
		case !is:
		case strings.HasSuffix(s.Name, ".update_success"), strings.HasSuffix(s.Name, ".update_attempt"), strings.HasSuffix(s.Name, ".update_failure"),
			strings.HasSuffix(s.Name, ".update_rejected"), strings.HasSuffix(s.Name, ".update_no_rebuild"), strings.HasSuffix(s.Name, "cluster_manager.warming_clusters"),
			strings.HasSuffix(s.Name, ".cluster_modified"), strings.HasSuffix(s.Name, ".cluster_added"), strings.HasSuffix(s.Name, ".listener_modified"),
			s.Name == "cluster.xds.upstream_rq_total", s.Name == "control_plane.connected_state":
			out[s.Name] = int(value)
		}
	}
	if len(out) < 10 || out["cluster.xds.upstream_rq_total"] != 1 || out["control_plane.connected_state"] != 1 {
		t.Fatalf("stats of Envoy: %v", out)
	}
	return out
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(deadline); !ok(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatal("did not happen in time: " + what)
		}
	}
}

// traffic sends requests one after the other until stopped; how many failed is returned by stop.
func traffic(url string, answers func(string)) (stop func() (sent, failed int64)) {
	var sent, failed atomic.Int64
	end := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				body, err := fetch(url)
				if sent.Add(1); err != nil {
					failed.Add(1)
				} else {
					answers(body)
				}
			}
		})
	}
	return func() (int64, int64) { close(end); wg.Wait(); return sent.Load(), failed.Load() }
}

func namedBackend(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// A real Envoy under traffic is moved back and forth between two replicas 20 times, loses one, and is moved no more: no
// request fails, no resource is sent, no counter of an update moves, and its one stream is the first one. Changes still
// reach it.
func TestEnvoySeesNothingOfAMove(t *testing.T) {
	m := newMesh()
	listener := freeAddr(t)
	oneService(t, m, listener, namedBackend(t, "one"))
	a, b := m.replica(t), m.replica(t)
	r := runRelay(t, Config{Target: a.addr, Follow: true}, func(r *Relay) {
		r.timing.spread, r.timing.between, r.timing.longest = 0, 50*time.Millisecond, 50*time.Millisecond
	})
	admin := startEnvoy(t, r.cfg.Socket)
	until(t, "traffic", func() bool { body, err := fetch("http://" + listener); return err == nil && body == "one" })
	eventually(t, r, "quiet", func(Stats) bool { _, sent := a.count(); return sent == 4 })
	before := envoyStats(t, admin)
	_, sentBefore := a.count()

	var last atomic.Pointer[string]
	stop := traffic("http://"+listener, func(body string) { last.Store(&body) })
	for i := range 20 {
		to := []*replica{b, a}[i%2]
		m.setOwner(to.addr)
		eventually(t, r, "moved", func(s Stats) bool { return s.Moves == uint64(i+1) && s.AtOwner && s.Upstream == to.addr })
	}
	if after := envoyStats(t, admin); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("Envoy noticed:\n%v\n%v", before, after)
	}
	m.setOwner(b.addr)
	eventually(t, r, "moved", func(s Stats) bool { return s.Upstream == b.addr && s.AtOwner })
	b.stop() // with its streams
	eventually(t, r, "resumed", func(s Stats) bool { return s.Resumes == 1 && s.Upstream == a.addr })
	if after := envoyStats(t, admin); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("Envoy noticed that a replica died:\n%v\n%v", before, after)
	}
	if _, sent := a.count(); sent != sentBefore {
		t.Errorf("%d resources were sent again", sent-sentBefore)
	}
	if _, sent := b.count(); sent != 0 {
		t.Errorf("%d resources were sent again", sent)
	}
	setBackend(t, m, namedBackend(t, "two"))
	until(t, "the new endpoint", func() bool { p := last.Load(); return p != nil && *p == "two" })
	sent, failed := stop()
	streams, _ := b.count()
	t.Logf("%d requests, %d failed; the other replica had %d streams", sent, failed, streams)
	if failed != 0 || sent < 100 || streams != 11 {
		t.Errorf("%d of %d requests failed, %d streams", failed, sent, streams)
	}
	if s := r.Stats(); s.StreamsOpened != 1 {
		t.Errorf("stats: %+v", s)
	}
}
