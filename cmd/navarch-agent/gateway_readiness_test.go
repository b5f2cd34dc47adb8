package main

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
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
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/shard/relay"
	"navarch.io/navarch/store/loopback"
)

const (
	rdsType = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	sdsType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// overADS is the source of resources that are waited for without a limit.
func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(0),
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// gatewayADS is the control plane of a gateway with an HTTPS listener whose Secret is missing, a plain one, and a
// cluster whose name does not resolve.
type gatewayADS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	resources map[string]*discoveryv3.Resource // by type and name
	routes    chan struct{}                    // closed when route configurations are sent
	answers   chan struct{}                    // closed when Secrets are answered
	secrets   chan string                      // names that Envoy asked for
	late      *discoveryv3.Resource            // a listener whose routes do not come
	began     chan time.Time                   // of the first request
	later     chan *discoveryv3.Resource       // listeners after the first ones

	mu           sync.Mutex
	acknowledged map[string]int // resource names that Envoy acknowledged, by type
}

// acks returns the number of names of a type that Envoy acknowledged.
func (g *gatewayADS) acks(url string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.acknowledged[url]
}

func (g *gatewayADS) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	var mu sync.Mutex
	send := func(of *discoveryv3.DeltaDiscoveryResponse) {
		mu.Lock()
		defer mu.Unlock()
		of.Nonce = strconv.Itoa(len(of.Resources) + len(of.RemovedResources))
		_ = s.Send(of) // an Envoy that has gone
	}
	for {
		req, err := s.Recv()
		if err != nil {
			return nil
		}
		select {
		case g.began <- time.Now():
		default:
		}
		if n, err := strconv.Atoi(req.ResponseNonce); err == nil && req.ErrorDetail == nil {
			g.mu.Lock()
			g.acknowledged[req.TypeUrl] += n
			g.mu.Unlock()
		}
		if req.ResponseNonce != "" && len(req.ResourceNamesSubscribe) == 0 {
			continue
		}
		response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: req.TypeUrl}
		switch req.TypeUrl {
		case sdsType:
			response.RemovedResources = req.ResourceNamesSubscribe
			for _, name := range req.ResourceNamesSubscribe {
				g.secrets <- name
			}
			go func() {
				<-g.answers
				send(response)
			}()
		case rdsType:
			for _, name := range req.ResourceNamesSubscribe {
				body, _ := anypb.New(&routev3.RouteConfiguration{Name: name}) // an empty message marshals
				response.Resources = append(response.Resources, &discoveryv3.Resource{Name: name, Version: "1", Resource: body})
			}
			go func() {
				<-g.routes
				if !slices.Contains(req.ResourceNamesSubscribe, "routes-late") {
					send(response)
				}
			}()
		default:
			for name, r := range g.resources {
				if url, _, _ := strings.Cut(name, "#"); url == req.TypeUrl {
					response.Resources = append(response.Resources, r)
				}
			}
			if len(response.Resources) > 0 {
				send(response)
			}
			if req.TypeUrl == ldsType {
				go func() {
					for r := range g.later {
						send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: ldsType, Resources: []*discoveryv3.Resource{r}})
					}
				}()
			}
		}
	}
}

// silence is a DNS server that answers nothing.
func silence(t *testing.T) *corev3.Address {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Protocol: corev3.SocketAddress_UDP, Address: "127.0.0.1",
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(c.LocalAddr().(*net.UDPAddr).Port)}}}}
}

// unresolved is a cluster of a name that does not resolve, with the resolver settings of the control plane.
func unresolved(t *testing.T) *clusterv3.Cluster {
	t.Helper()
	address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "nowhere.example",
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}}}}
	resolver := &caresv3.CaresDnsResolverConfig{Resolvers: []*corev3.Address{silence(t)},
		QueryTries: wrapperspb.UInt32(2), QueryTimeoutSeconds: wrapperspb.UInt64(2)}
	endpoint := &endpointv3.Endpoint{Address: address}
	return &clusterv3.Cluster{
		Name: "lost", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS},
		ConnectTimeout:  durationpb.New(time.Second),
		DnsLookupFamily: clusterv3.Cluster_V4_ONLY,
		TypedDnsResolverConfig: &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares",
			TypedConfig: packed(t, resolver)},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "lost", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: endpoint}}},
		}}},
	}
}

// newGatewayADS serves a plain listener and an HTTPS one at addresses of their own. The third listener is not sent.
func newGatewayADS(t *testing.T, plain, https, late string) *gatewayADS {
	t.Helper()
	ads := overADS()
	g := &gatewayADS{routes: make(chan struct{}), answers: make(chan struct{}), secrets: make(chan string, 16),
		began: make(chan time.Time, 1), later: make(chan *discoveryv3.Resource), acknowledged: map[string]int{}}
	t.Cleanup(func() { close(g.later) })
	g.resources = map[string]*discoveryv3.Resource{}
	add := func(key, name string, m proto.Message) {
		g.resources[key+"#"+name] = &discoveryv3.Resource{Name: name, Version: "1", Resource: packed(t, m)}
	}
	for name, at := range map[string]string{"plain": plain, "https": https, "late": late} {
		base := newFakeADS(t, at, "127.0.0.1:1")
		l := &listenerv3.Listener{}
		if err := outbound(t, base.resources[ldsType].Resource).UnmarshalTo(l); err != nil {
			t.Fatal(err)
		}
		hcm := &hcmv3.HttpConnectionManager{}
		if err := l.FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(hcm); err != nil {
			t.Fatal(err)
		}
		hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads, RouteConfigName: "routes-" + name}}
		l.Name = name
		l.FilterChains[0].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, hcm)}
		if name == "https" {
			sds := overADS()
			sds.InitialFetchTimeout = nil // as istiod and the control plane have it: Envoy's 15 s
			common := &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "kubernetes://missing", SdsConfig: sds}}}
			l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls",
				ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t, &tlsv3.DownstreamTlsContext{CommonTlsContext: common})}}
		}
		add(ldsType, name, l)
	}
	add(cdsType, "lost", unresolved(t))
	g.late = g.resources[ldsType+"#late"]
	delete(g.resources, ldsType+"#late")
	return g
}

// start serves, and returns a gateway whose Envoy has asked for its Secret.
func (g *gatewayADS) start(t *testing.T) *process {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, g)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	p := startAgent(t, listener.Addr().String(), "--xds-plaintext", "--type", "router")
	select {
	case name := <-g.secrets:
		if name != "kubernetes://missing" {
			t.Errorf("Envoy asks for %q", name)
		}
	case <-time.After(deadline):
		t.Fatal("Envoy asked for no Secret")
	}
	return p
}

// A gateway that has its routes is unready until its Secret is answered, and the other way round.
func TestGatewayWaitsForRoutesAndSecrets(t *testing.T) {
	t.Parallel()
	for _, last := range []string{rdsType, sdsType} {
		t.Run(last[strings.LastIndexByte(last, '.')+1:], func(t *testing.T) {
			t.Parallel()
			g := newGatewayADS(t, loopback.For(t), loopback.For(t), loopback.For(t))
			p := g.start(t)
			first, names, missing := g.answers, map[string]int{sdsType: 1}, g.routes
			if last == sdsType {
				first, names, missing = g.routes, map[string]int{rdsType: 2}, g.answers
			}
			p.until("not ready", func(d debugPage) bool { return !d.Ready && strings.Contains(d.NotReady, "INITIALIZING") })
			close(first)
			for url, n := range names {
				await(t, "the first answers are not acknowledged", func() bool { return g.acks(url) == n })
			}
			err := newAdmin(p.admin).ready(t.Context())
			if ready := p.readiness(); err == nil || !strings.Contains(err.Error(), "INITIALIZING") || ready != http.StatusServiceUnavailable {
				t.Errorf("before the last answer: %v, /healthz/ready %d", err, ready)
			}
			close(missing)
			p.until("ready", func(d debugPage) bool { return d.Ready })
		})
	}
}

// A gateway is ready once its routes are there and each Secret is answered. A Secret that is missing and a name that
// does not resolve keep it unready for less than ten seconds.
// Promise: security-gateways.md#make-a-gateway-fail
func TestGatewayReadiness(t *testing.T) {
	t.Parallel()
	plain := loopback.For(t)
	g := newGatewayADS(t, plain, loopback.For(t), loopback.For(t))
	close(g.answers)
	p := g.start(t)
	p.until("not ready without routes", func(d debugPage) bool { return !d.Ready && strings.Contains(d.NotReady, "INITIALIZING") })
	close(g.routes)
	p.until("ready", func(d debugPage) bool { return d.Ready })
	if took := time.Since(<-g.began); took > 10*time.Second {
		t.Errorf("ready after %v", took)
	}
	resp, err := http.Get("http://" + plain)
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a listener beside the one without a Secret: %v, %v", resp, err)
	}
	if err == nil {
		resp.Body.Close()
	}
	g.later <- g.late
	await(t, "the listener without routes does not warm", func() bool {
		stats, err := newAdmin(p.admin).stats(t.Context(), gatewayStats)
		return err == nil && new(warming).wait(1, stats, time.Now()) == "Envoy waits for routes, Secrets or endpoints of 1 listeners"
	})
	if p.readiness() != http.StatusOK {
		t.Error("a gateway that was ready is not ready any more")
	}
}

// Listeners and clusters that warm after the first configuration keep a gateway unready, for the limit at most, and
// counts again for another Envoy. A sidecar does not ask.
// Promise: security-gateways.md#make-a-gateway-fail
func TestGatewayWarming(t *testing.T) {
	var w warming
	began := time.Now()
	listeners, both := map[string]int{listenersWarming: 2}, map[string]int{listenersWarming: 1, clustersWarming: 3}
	for _, c := range []struct {
		start int64
		stats map[string]int
		after time.Duration
		want  string
	}{
		{1, listeners, 0, "2 listeners"}, {1, both, warmingLimit - 1, "1 listeners and 3 clusters"}, {1, both, warmingLimit, ""},
		{2, both, warmingLimit, "1 listeners"}, {2, both, 2*warmingLimit - 1, "1 listeners"}, {2, nil, 2*warmingLimit - 1, ""},
	} {
		if got := w.wait(c.start, c.stats, began.Add(c.after)); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("start %d after %v: %q, want %q", c.start, c.after, got, c.want)
		}
	}
	ready := condition{updates: map[string]int{"cluster_manager.cds.update_success": 1, "listener_manager.lds.update_success": 1}}
	if got := ready.missing(); got != nil {
		t.Errorf("nothing warms: %q", got)
	}
	ready.warming = "Envoy waits"
	if got := ready.missing(); !slices.Equal(got, []string{"Envoy waits"}) {
		t.Errorf("something warms: %q", got)
	}
	router := &agent{cfg: &options{bye: shutdown{gateway: true}}}
	if sidecar := (&agent{cfg: &options{}}); sidecar.configStats() != configStats || router.configStats() == configStats {
		t.Error("the statistics are those of the other kind")
	}
}

// An agent asks Envoy what warms: a gateway is unready meanwhile, a sidecar is not.
func TestGatewayIsUnreadyWhileListenersWarm(t *testing.T) {
	var warm atomic.Bool
	envoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 1
		if warm.Load() {
			n = 0
		}
		all := map[string]int{"cluster_manager.cds.update_success": 1, "listener_manager.lds.update_success": 1, listenersWarming: n}
		pattern := regexp.MustCompile(cmp.Or(r.URL.Query().Get("filter"), "."))
		var stats []string
		for name, value := range all {
			if pattern.MatchString(name) {
				stats = append(stats, fmt.Sprintf(`{"name": %q, "value": %d}`, name, value))
			}
		}
		fmt.Fprintf(w, `{"stats": [%s]}`, strings.Join(stats, ","))
	}))
	defer envoy.Close()
	start := func(kind string) *process {
		return startAgent(t, loopback.For(t), "--xds-plaintext", "--type", kind, "--admin-address", envoy.Listener.Addr().String(),
			"--envoy-path", program(t, "trap 'exit 0' TERM; while :; do sleep 0.05; done"))
	}
	gateway, sidecar := start("router"), start("sidecar")
	sidecar.until("ready", func(d debugPage) bool { return d.Ready })
	gateway.until("waiting", func(d debugPage) bool {
		return d.NotReady == "Envoy waits for routes, Secrets or endpoints of 1 listeners"
	})
	warm.Store(true)
	gateway.until("ready", func(d debugPage) bool { return d.Ready })
}

// A listener that Envoy refuses keeps a gateway unready for eight seconds, if another one is there, and listeners that
// warm do not add to them. Without any, it does so for good.
// Promise: security-gateways.md#make-a-gateway-fail
func TestGatewayRefusedListeners(t *testing.T) {
	refused := condition{updates: map[string]int{"cluster_manager.cds.update_success": 1, listenersRefused: 1},
		refused: []relay.Refused{{Type: listenerURL, Names: []string{"evil"}, Total: 1, Error: "cannot bind"}}}
	refused.withoutRefused()
	if got := refused.missing(); len(got) != 1 || !strings.Contains(got[0], "cannot bind") {
		t.Errorf("without a listener: %q", got)
	}
	refused.updates[listenersActive] = 1
	refused.withoutRefused()
	if got := refused.missing(); len(got) > 0 {
		t.Errorf("with a listener: %q", got)
	}
	var w warming
	begin := time.Unix(100, 0)
	for _, c := range []struct {
		start int64
		after time.Duration
		over  bool
	}{{1, 0, false}, {1, warmingLimit - 1, false}, {1, warmingLimit, true}, {2, warmingLimit, false}} {
		if got := w.over(c.start, begin.Add(c.after)); got != c.over {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := w.wait(2, map[string]int{listenersWarming: 1}, begin.Add(2*warmingLimit)); got != "" {
		t.Errorf("a listener that warms beside a refused one: %q", got)
	}
}
