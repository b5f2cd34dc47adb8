package serve

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
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
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// patience is the limit of each wait in these tests.
const patience = time.Minute

// fakePlanner returns one set for all clients.
type fakePlanner struct {
	mu     sync.Mutex
	set    *manifest.Set
	views  map[*fakeProxy]int // each with its number in the order of joining
	refuse error
	joined []Client

	id        atomic.Pointer[string] // the id of the common view; nil: "view"
	confirmed atomic.Int32
	confirm   func() error // nil: no error
}

type fakeProxy struct {
	p     *fakePlanner
	moved func(fanout.Lane)
}

func newPlanner(resources ...*xds.Resource) *fakePlanner {
	p := &fakePlanner{views: map[*fakeProxy]int{}, set: &manifest.Set{Revision: 1}}
	p.put(resources...)
	return p
}

func (p *fakePlanner) Join(_ context.Context, c Client, moved func(fanout.Lane)) (Proxy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return nil, p.refuse
	}
	v := &fakeProxy{p, moved}
	p.joined = append(p.joined, c)
	p.views[v] = len(p.joined)
	return v, nil
}

// edit replaces the set and notifies all clients.
func (p *fakePlanner) edit(puts []*xds.Resource, deletes ...xds.Ref) {
	p.mu.Lock()
	next := *p.set
	next.Revision++
	lane := fanout.Endpoints
	for t := range xds.NumTypes {
		var add []*xds.Resource
		var del []string
		for _, r := range puts {
			if r.Type == t {
				add = append(add, r)
			}
		}
		for _, d := range deletes {
			if d.Type == t {
				del = append(del, d.Name)
			}
		}
		if len(add)+len(del) > 0 {
			if t != xds.Endpoint {
				lane = fanout.Config
			}
			next.Types[t][manifest.Scope] = next.Types[t][manifest.Scope].With(add, del)
		}
	}
	if lane == fanout.Config {
		next.Plan++
	}
	p.set = &next
	views := slices.SortedFunc(maps.Keys(p.views), func(a, b *fakeProxy) int { return p.views[a] - p.views[b] })
	p.mu.Unlock()
	for _, v := range views {
		v.moved(lane)
	}
}

func (p *fakePlanner) put(resources ...*xds.Resource) { p.edit(resources) }

// quietly replaces resources without notifying the clients.
func (p *fakePlanner) quietly(resources ...*xds.Resource) {
	p.mu.Lock()
	views := p.views
	p.views = nil
	p.mu.Unlock()
	p.put(resources...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views = views
}

func (v *fakeProxy) Set() *manifest.Set {
	v.p.mu.Lock()
	defer v.p.mu.Unlock()
	return v.p.set
}
func (v *fakeProxy) Namespace() string { return "default" }
func (v *fakeProxy) ID() string {
	if id := v.p.id.Load(); id != nil {
		return *id
	}
	return "view"
}
func (v *fakeProxy) Confirm(context.Context) error {
	v.p.confirmed.Add(1)
	if v.p.confirm != nil {
		return v.p.confirm()
	}
	return nil
}
func (v *fakeProxy) Leave() {
	v.p.mu.Lock()
	defer v.p.mu.Unlock()
	delete(v.p.views, v)
}

// start runs a server on a loopback port.
func start(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	return startOn(t, cfg, l), l.Addr().String()
}

func startOn(t testing.TB, cfg Config, l net.Listener) *Server {
	t.Helper()
	s := New(cfg)
	g := grpc.NewServer(Options()...)
	s.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = g.Serve(Listen(l)) })
	done.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { g.Stop(); cancel(); done.Wait() })
	return s
}

// eventually waits for a condition that another process or goroutine makes true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within %v: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func encode(t xds.Type, name string, m proto.Message, needs ...xds.Ref) *xds.Resource {
	r, err := xds.Encode(t, name, m, needs...)
	if err != nil {
		panic(err)
	}
	return r
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

var adsSource = &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

func clusterMessage(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsSource}}
}

func cluster(name string, edits ...func(*clusterv3.Cluster)) *xds.Resource {
	c := clusterMessage(name)
	for _, edit := range edits {
		edit(c)
	}
	return encode(xds.Cluster, name, c, xds.Ref{Type: xds.Endpoint, Name: name})
}

func endpoints(name string, addresses ...string) *xds.Resource {
	lb := &endpointv3.LocalityLbEndpoints{}
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			panic(err)
		}
		var n uint32
		fmt.Sscan(port, &n)
		lb.LbEndpoints = append(lb.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: socket(host, n)}}})
	}
	return encode(xds.Endpoint, name, &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{lb}})
}

func socket(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}
}

func listen(name string, port uint32, route string, edits ...func(*listenerv3.Listener)) *xds.Resource {
	l := &listenerv3.Listener{Name: name, Address: socket("127.0.0.1", port), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(&hcmv3.HttpConnectionManager{
			StatPrefix:     name,
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: adsSource, RouteConfigName: route}},
			HttpFilters: []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router",
				ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
		})}}}}}}
	for _, edit := range edits {
		edit(l)
	}
	return encode(xds.Listener, name, l, xds.Ref{Type: xds.Route, Name: route})
}

func route(name, cluster string, domains ...string) *xds.Resource {
	if len(domains) == 0 {
		domains = []string{"*"}
	}
	return encode(xds.Route, name, &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: domains,
		Routes: []*routev3.Route{{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}}}}}})
}
