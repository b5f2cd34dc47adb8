package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
)

// patience bounds every wait of these tests.
const patience = time.Minute

// server is a small, correct server of the delta protocol; tests make it wrong with calls of say.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t           *testing.T
	sotwStreams *sotwServer // nil: the older form is not spoken
	addr        string
	grpc        *grpc.Server

	admit  chan struct{} // streams wait until it is closed; nil: they do not wait
	refuse error         // error for streams then; nil: they are admitted

	mu         sync.Mutex
	sotw       [xds.NumTypes]map[string]*discoveryv3.Resource
	revision   string
	mute       [xds.NumTypes]bool // types whose requests are not answered
	agentTypes map[string]proto.Message
	streams    []*stream
	nonce      int
	requests   []*discoveryv3.DeltaDiscoveryRequest // all, in order
	peers      []string
	headers    []metadata.MD
}

type both = grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

type stream struct {
	both
	node    *corev3.Node
	names   [xds.NumTypes]map[string]bool
	pending map[string]bool // nonces without an answer
}

// serve starts a server with the small mesh; it ends with the test.
func serve(t *testing.T, tlsConfig *tls.Config) *server {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var opts []grpc.ServerOption
	if tlsConfig != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(tlsConfig)))
	}
	s := &server{t: t, addr: lis.Addr().String(), grpc: grpc.NewServer(opts...), agentTypes: map[string]proto.Message{}}
	for ty := range s.sotw {
		s.sotw[ty] = map[string]*discoveryv3.Resource{}
	}
	s.small()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(lis) }() // ends with Stop
	t.Cleanup(s.grpc.Stop)
	return s
}

// small adds two clusters, a listener and a route.
func (s *server) small() {
	for _, name := range []string{"a", "b"} {
		s.set(xds.Cluster, name, "1", cluster(name, 1))
		s.set(xds.Endpoint, name, "1", endpoints(name, 1))
	}
	s.set(xds.Listener, "in", "1", listener("in", "80"))
	s.set(xds.Route, "80", "1", route("80", "a", "b"))
}

// many adds services and a route to all of them, and returns the services' names.
func (s *server) many(services int, version string) (names []string) {
	for i := range services {
		name := fmt.Sprintf("outbound|80||a-service-with-a-long-name-%d.and-a-namespace.svc.cluster.local", i)
		names = append(names, name)
		s.set(xds.Cluster, name, version, cluster(name, 1))
		s.set(xds.Endpoint, name, version, endpoints(name, 1))
	}
	s.set(xds.Route, "80", "1", route("80", names...))
	return names
}

func cluster(name string, timeout int64) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		AltStatName:      fmt.Sprint(timeout),
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsSource()}}
}

func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func endpoints(name string, port uint32) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: port}}}
}

func listener(name, rds string) *listenerv3.Listener {
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{StatPrefix: "x", RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
		Rds: &hcmv3.Rds{RouteConfigName: rds, ConfigSource: adsSource()}}})
	if err != nil {
		panic(err)
	}
	return &listenerv3.Listener{Name: name, FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}}}}}
}

func route(name string, clusters ...string) *routev3.RouteConfiguration {
	r := &routev3.RouteConfiguration{Name: name}
	for _, c := range clusters {
		r.VirtualHosts = append(r.VirtualHosts, &routev3.VirtualHost{Name: c, Domains: []string{c}, Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: c}}}}}})
	}
	return r
}

// set changes the mesh; say sends to the streams.
func (s *server) set(t xds.Type, name, version string, m proto.Message) {
	body, err := anypb.New(m)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sotw[t][name] = &discoveryv3.Resource{Name: name, Version: version, Resource: body}
}

func (s *server) unset(t xds.Type, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sotw[t], name)
}

func (s *server) DeltaAggregatedResources(g both) error {
	st := &stream{both: g, pending: map[string]bool{}}
	from, _ := peer.FromContext(g.Context())
	md, _ := metadata.FromIncomingContext(g.Context())
	s.mu.Lock()
	s.streams = append(s.streams, st)
	s.peers = append(s.peers, from.Addr.String())
	s.headers = append(s.headers, md)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = slices.DeleteFunc(s.streams, func(x *stream) bool { return x == st })
	}()
	if s.admit != nil {
		select {
		case <-s.admit:
		case <-g.Context().Done():
			return nil
		}
	}
	if s.refuse != nil {
		return s.refuse
	}
	for {
		r, err := g.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		err = s.handle(st, r)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (s *server) handle(st *stream, r *discoveryv3.DeltaDiscoveryRequest) error {
	s.requests = append(s.requests, r)
	if r.Node != nil && st.node == nil {
		st.node = r.Node
	}
	delete(st.pending, r.ResponseNonce)
	t := xds.ParseURL(r.TypeUrl)
	if t == xds.Unknown {
		if m := s.agentTypes[r.TypeUrl]; m != nil && r.ResponseNonce == "" {
			return s.answerAgentType(st, r, m)
		}
		return nil
	}
	first := st.names[t] == nil
	if first {
		st.names[t] = map[string]bool{}
	}
	for _, n := range r.ResourceNamesUnsubscribe {
		delete(st.names[t], n)
	}
	var set, removed []string
	if t.Wildcard() && first {
		for n, res := range s.sotw[t] {
			if !claims(r, res) {
				set = append(set, n)
			}
		}
		for n := range r.InitialResourceVersions {
			if s.sotw[t][n] == nil {
				removed = append(removed, n)
			}
		}
	}
	for _, n := range r.ResourceNamesSubscribe {
		st.names[t][n] = true
		switch res := s.sotw[t][n]; {
		case res == nil:
			removed = append(removed, n)
		case !claims(r, res):
			set = append(set, n)
		}
	}
	resumed := len(r.InitialResourceVersions) > 0
	if s.mute[t] || len(set)+len(removed) == 0 && (!first || resumed || !t.Wildcard()) {
		return nil
	}
	return s.send(st, t, set, removed)
}

// claims reports whether the client claimed this version.
func claims(r *discoveryv3.DeltaDiscoveryRequest, res *discoveryv3.Resource) bool {
	v, ok := r.InitialResourceVersions[res.Name]
	return ok && v == res.Version
}

func (s *server) answerAgentType(st *stream, r *discoveryv3.DeltaDiscoveryRequest, m proto.Message) error {
	body, err := anypb.New(m)
	if err != nil {
		return err
	}
	body.TypeUrl = r.TypeUrl
	return st.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeUrl, Nonce: "agent",
		Resources: []*discoveryv3.Resource{{Name: r.ResourceNamesSubscribe[0], Version: "1", Resource: body}}})
}

// send sends what the mesh has of some names; s.mu is held.
func (s *server) send(st *stream, t xds.Type, set, removed []string) error {
	s.nonce++
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.URL(), Nonce: fmt.Sprint(s.nonce), RemovedResources: removed,
		SystemVersionInfo: s.revision}
	slices.Sort(set)
	for _, n := range set {
		r.Resources = append(r.Resources, s.sotw[t][n])
	}
	st.pending[r.Nonce] = true
	return st.Send(r)
}

// say sends arbitrary resources to some streams (by Pod name; none: all).
func (s *server) say(t xds.Type, set, removed []string, to ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if st.node != nil && (len(to) == 0 || slices.Contains(to, st.node.Metadata.Fields["NAME"].GetStringValue())) {
			if err := s.send(st, t, slices.Clone(set), removed); err != nil {
				s.t.Errorf("send: %v", err)
			}
		}
	}
}

// settled waits until nothing that was sent is unacknowledged.
func (s *server) settled() {
	s.t.Helper()
	eventually(s.t, "everything is acknowledged", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, st := range s.streams {
			if len(st.pending) > 0 {
				return false
			}
		}
		return true
	})
}

// count returns the number of requests that satisfy a condition.
func (s *server) count(is func(*discoveryv3.DeltaDiscoveryRequest) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if is(r) {
			n++
		}
	}
	return n
}

// eventually polls until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); {
		waited := time.Since(began)
		if waited > patience {
			t.Fatalf("waited %v: never seen that %s", patience, what)
		}
		time.Sleep(envoytest.Pause(waited))
	}
}

// fleet starts n proxies of one View and waits until they are joined.
func fleet(t *testing.T, n int, cfg Config, servers ...*server) *Fleet {
	t.Helper()
	for _, s := range servers {
		cfg.Addrs = append(cfg.Addrs, s.addr)
	}
	if cfg.BackOff == 0 {
		cfg.BackOff = 10 * time.Millisecond
	}
	if cfg.WarmTimeout == 0 {
		cfg.WarmTimeout = patience / 2
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.Add(identities(n)...)
	join(t, f, n)
	return f
}

func identities(n int) []Identity {
	var ids []Identity
	for i := range n {
		ids = append(ids, Identity{Namespace: "ns", Name: fmt.Sprintf("p%d", i), IP: fmt.Sprintf("10.0.%d.%d", i>>8, i&255),
			Labels: map[string]string{"app": "p"}, View: "v"})
	}
	return ids
}

func join(t *testing.T, f *Fleet, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := f.WaitJoined(ctx, n); err != nil {
		t.Fatal(err)
	}
}

// clean checks that there are no violations.
func clean(t *testing.T, f *Fleet) {
	t.Helper()
	for kind, v := range f.Stats().Found {
		t.Errorf("%s: %d, %v", kind, v.Count, v.Examples)
	}
}
