package relay

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

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

func fetch(url string) (string, error) {
	resp, err := (&http.Client{Timeout: deadline}).Get(url)
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

// envoyStats returns the counters that show whether Envoy noticed anything.
func envoyStats(t *testing.T, admin string) map[string]int {
	t.Helper()
	stats, err := envoytest.Stats(admin)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for name, value := range stats {
		switch {
		case strings.HasSuffix(name, ".update_success"), strings.HasSuffix(name, ".update_attempt"), strings.HasSuffix(name, ".update_failure"),
			strings.HasSuffix(name, ".update_rejected"), strings.HasSuffix(name, ".update_no_rebuild"), strings.HasSuffix(name, "cluster_manager.warming_clusters"),
			strings.HasSuffix(name, ".cluster_modified"), strings.HasSuffix(name, ".cluster_added"), strings.HasSuffix(name, ".listener_modified"),
			name == "cluster.xds.upstream_rq_total", name == "control_plane.connected_state":
			out[name] = value
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
	listener := loopback.For(t)
	oneService(t, m, listener, namedBackend(t, "one"))
	a, b := m.replica(t), m.replica(t)
	r := runRelay(t, Config{Target: a.addr, Follow: true}, func(r *Relay) {
		r.timing.spread, r.timing.between, r.timing.longest = 0, 50*time.Millisecond, 50*time.Millisecond
	})
	admin := envoytest.Start(t, envoytest.ADS("DELTA_GRPC", r.cfg.Socket)).Admin
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
