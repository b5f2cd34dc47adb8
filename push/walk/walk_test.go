package walk

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
)

// holding returns a Held of messages.
func holding[M proto.Message](all ...M) *Messages {
	m := &Messages{}
	for _, one := range all {
		m.Add(one)
	}
	return m
}

func config(t *testing.T, m proto.Message) *anypb.Any {
	out, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// listener returns an outbound listener with one chain of one network filter.
func listener(t *testing.T, ip string, port uint32, filter proto.Message) *listenerv3.Listener {
	return &listenerv3.Listener{Name: xds.ListenerName(ip, port), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
			{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config(t, filter)}}}}},
	}
}

func to(cluster string) *tcpv3.TcpProxy {
	return &tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}}
}

func manager(route string) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: route}}}
}

// A summary is one sentence, and a walk ends with what decided.
func TestSummaries(t *testing.T) {
	prefix := func(p string) *routev3.RouteMatch {
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: p}}
	}
	route := func(p, cluster string) *routev3.Route {
		return &routev3.Route{Match: prefix(p), Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}}
	}
	weighted := &routev3.Route{Match: prefix("/w"), Action: &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{
			Clusters: []*routev3.WeightedCluster_ClusterWeight{
				{Name: "outbound|80||gone", Weight: wrapperspb.UInt32(90)}, {Name: "outbound|80||empty", Weight: wrapperspb.UInt32(10)}}}}}}}
	unreadable := &routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: "("}}}}
	redirect := &routev3.Route{Match: prefix("/r"), Action: &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{
		ResponseCode: routev3.RedirectAction_FOUND}}}
	held := holding[proto.Message](listener(t, "0.0.0.0", 80, manager("80")), listener(t, "0.0.0.0", 81, manager("81")),
		listener(t, "10.96.0.9", 5000, to("outbound|5000||db.shop.svc.cluster.local")),
		&listenerv3.Listener{Name: "0.0.0.0_82", Address: listener(t, "0.0.0.0", 82, to("x")).Address},
		&routev3.RouteConfiguration{Name: "80", VirtualHosts: []*routev3.VirtualHost{
			{Name: "api:80", Domains: []string{"api"}, Routes: []*routev3.Route{
				unreadable, weighted, redirect, route("/a", "outbound|80||empty")}}}},
		&clusterv3.Cluster{Name: "outbound|80||empty"})
	if got, want := Walk(held, Inbound, Request{Scheme: "http", Address: "10.0.0.1", Port: 8080}).Summary(),
		"no listener of the proxy takes the connection, which listens at port 80, 81, 82, 5000 (the targetPort of a Service in front of it)"; got != want {
		t.Errorf("inbound: %q, want %q", got, want)
	}
	for _, c := range []struct {
		host, path string
		port       uint32
		outcome    Outcome
		status     int
		summary    string
		decides    string
	}{
		{"api", "/a", 80, Forwarded, 0, "the proxy sends the request to outbound|80||empty, which has no endpoint: 503 (UH)", "80"},
		{"api", "/w", 80, Forwarded, 0, "the proxy sends the request to outbound|80||gone (weight 90), which the proxy does not have: 503 (NC), " +
			"or to outbound|80||empty (weight 10), which has no endpoint: 503 (UH)", "80"},
		{"api", "/r", 80, Answered, 302, "the proxy answers 302 by itself", "80"},
		{"api", "/x", 80, Answered, 404, "the proxy answers 404 by itself", "80"},
		{"other", "/a", 80, Answered, 404, "the proxy answers 404 by itself", "80"},
		{"api", "/a", 81, Waiting, 0, "the proxy holds the request until its route configuration comes", "0.0.0.0_81"},
		{"api", "/a", 82, Closed, 0, "the proxy closes the connection: listener 0.0.0.0_82 closes the connection: no filter chain", "0.0.0.0_82"},
		{"api", "/a", 83, Unserved, 0, "no listener of the proxy takes the connection", ""},
		{"db.shop", "/", 5000, Forwarded, 0,
			"the proxy sends the request to outbound|5000||db.shop.svc.cluster.local, which the proxy does not have: the connection is closed (NC)", "10.96.0.9_5000"},
	} {
		r := Walk(held, Outbound, Request{Scheme: "http", Name: c.host, Address: AddressOf(held, c.host, c.port), Port: c.port,
			Headers: map[string]string{":authority": c.host, ":path": c.path, ":method": "GET", ":scheme": "http"}})
		if _, name := r.Deciding(); r.Outcome != c.outcome || r.Status != c.status || r.Summary() != c.summary || name != c.decides {
			t.Errorf("%s:%d%s: %v %d %q, decided by %q; steps %v", c.host, c.port, c.path, r.Outcome, r.Status, r.Summary(), name, r.Steps)
		}
		if n := strings.Count(r.Summary(), "\n"); n > 0 {
			t.Errorf("%q has %d lines", r.Summary(), n+1)
		}
	}
}

// A gateway has the ports of its listeners. Listeners at Unix sockets are left out.
func TestPorts(t *testing.T) {
	held := holding(listener(t, "0.0.0.0", 8443, to("a")), listener(t, "0.0.0.0", 8080, to("a")), &listenerv3.Listener{Name: "socket",
		Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/socket"}}}})
	if got := held.Ports(); !slices.Equal(got, []uint32{8080, 8443}) {
		t.Errorf("ports %v", got)
	}
}

// A sidecar has the ports of the redirected connections, and of inbound listeners of its own (captureMode NONE). Its
// outbound listeners are for its own workload, also if it has no inbound listener.
func TestPortsOfSidecar(t *testing.T) {
	out := listener(t, "0.0.0.0", 80, to("a"))
	out.TrafficDirection = corev3.TrafficDirection_OUTBOUND
	own := listener(t, "127.0.0.1", 9080, to("a"))
	own.TrafficDirection = corev3.TrafficDirection_INBOUND
	virtual := listener(t, "0.0.0.0", 15006, to("a"))
	virtual.Name, virtual.TrafficDirection = xds.VirtualInbound, corev3.TrafficDirection_INBOUND
	for _, port := range []uint32{8080, 15006} {
		virtual.FilterChains = append(virtual.FilterChains, &listenerv3.FilterChain{
			FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(port)}})
	}
	for what, c := range map[string]struct {
		listeners []*listenerv3.Listener
		want      []uint32
	}{
		"redirected":                 {[]*listenerv3.Listener{out, virtual}, []uint32{8080}},
		"redirected, and of its own": {[]*listenerv3.Listener{own, out, virtual}, []uint32{8080, 9080}},
		"of its own":                 {[]*listenerv3.Listener{out, own}, []uint32{9080}},
		"mode NONE, none of its own": {[]*listenerv3.Listener{out}, nil},
	} {
		held := holding(c.listeners...)
		held.Add(&clusterv3.Cluster{Name: xds.InboundPassthrough})
		if got := held.Ports(); !slices.Equal(got, c.want) {
			t.Errorf("%s: ports %v, want %v", what, got, c.want)
		}
	}
}

// Where nothing is redirected to a proxy, clients connect to the address of its outbound listener. Where connections
// are redirected, the address of a host that no listener is for stays unknown.
func TestAddressOf(t *testing.T) {
	held := holding(listener(t, "127.0.10.1", 8000, manager("8000")))
	if got := AddressOf(held, "catalog", 8000); got != "127.0.10.1" {
		t.Errorf("not redirected: %q", got)
	}
	held.Add(&listenerv3.Listener{Name: xds.VirtualOutbound})
	if got := AddressOf(held, "catalog", 8000); got != "" {
		t.Errorf("redirected: %q", got)
	}
}

// A gateway has no application: the last sentence names its destination.
func TestGatewayIsNoApplication(t *testing.T) {
	for cluster, want := range map[string]string{
		"inbound|8080||":        "the request reaches the server's application, by inbound|8080||",
		"outbound|80||api.test": "the server's proxy sends the request to outbound|80||api.test, which has 1 endpoint",
	} {
		to := []Destination{{Cluster: cluster, Endpoints: []string{"10.0.0.1:80"}}}
		if got := (Call{Server: &Result{Outcome: Forwarded, To: to}}).Summary(); got != want {
			t.Errorf("%s: %s", cluster, got)
		}
	}
}
