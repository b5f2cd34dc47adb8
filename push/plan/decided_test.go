package plan

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The properties below are computed once, in the plan; builders only encode them.

// How a port accepts connections follows from PeerAuthentications if the proxy can terminate mTLS. Otherwise the port
// accepts plain connections, or none if mTLS is required.
func TestModeOfAPort(t *testing.T) {
	const port = 180
	for _, c := range []struct {
		mode string
		able bool
		want string // the kinds of connections that the port's chains accept
	}{
		{"PERMISSIVE", true, "mTLS, in the clear"}, {"PERMISSIVE", false, "in the clear"},
		{"STRICT", true, "mTLS"}, {"STRICT", false, "nobody"},
		{"DISABLE", true, "in the clear"}, {"DISABLE", false, "in the clear"},
	} {
		n := node("shop", "web-1", "app=web")
		if c.able {
			n.Caps |= xds.CapIdentity
		}
		set := planFor(snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"),
			security(t, model.KindPeerAuthentication, "shop/default", "{mtls: {mode: "+c.mode+"}}", &securityv1.PeerAuthentication{})), n)
		var got []string
		for _, chain := range listenerOf(t, set, xds.VirtualInbound).FilterChains {
			switch {
			case chain.GetFilterChainMatch().GetDestinationPort().GetValue() != port:
			case chain.TransportSocket != nil:
				got = append(got, "mTLS")
			case strings.Contains(chain.String(), xds.BlackHole):
				got = append(got, "nobody")
			default:
				got = append(got, "in the clear")
			}
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s, able to end mTLS: %v: %s, want %s", c.mode, c.able, got, c.want)
		}
	}
}

// The connection pool of an inbound cluster, with its connect timeout, is that of the Sidecar's ingress listener, else
// of the Sidecar, else of the service's rules, else of the mesh. Explain names the field, and for a listener the
// Sidecar.
func TestConnectionPoolOfInboundClusters(t *testing.T) {
	pool := func(n int) string { return fmt.Sprintf("{tcp: {maxConnections: %d, connectTimeout: %ds}}", n, n) }
	web := svc(t, "shop/web", "10.96.0.1", "http:80:HTTP")
	mesh := rec(t, model.KindMesh, "", "{defaultDestinationRuleExportTo: ['*'], connectTimeout: 9s, defaultTrafficPolicy: {connectionPool: "+pool(1)+"}}")
	rule := rec(t, model.KindDestinationRule, "shop/web", "{host: web.shop.svc.cluster.local, trafficPolicy: {connectionPool: "+pool(2)+"}}")
	sidecar := func(text string) model.Record {
		return rec(t, model.KindSidecar, "shop/own", "{workloadSelector: {labels: {app: web}}, "+text+"}")
	}
	listener := "ingress: [{port: {number: 180, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:1'"
	for _, c := range []struct {
		records []model.Record
		limit   uint32
		at      string
		bringer bool
	}{
		{[]model.Record{web, mesh}, 1, "MeshConfig data.mesh.defaultTrafficPolicy.connectionPool", false},
		{[]model.Record{web, mesh, rule}, 2, "DestinationRule shop/web spec.trafficPolicy.connectionPool", false},
		{[]model.Record{web, mesh, rule, sidecar("inboundConnectionPool: " + pool(3))}, 3, "Sidecar shop/own spec.inboundConnectionPool", false},
		{[]model.Record{web, mesh, rule, sidecar(listener + "}]")}, 2, "DestinationRule shop/web spec.trafficPolicy.connectionPool", true},
		{[]model.Record{web, mesh, rule, sidecar(listener + "}], inboundConnectionPool: " + pool(3))}, 3, "Sidecar shop/own spec.inboundConnectionPool", true},
		{[]model.Record{web, mesh, rule, sidecar(listener + ", connectionPool: " + pool(4) + "}], inboundConnectionPool: " + pool(3))}, 4, "Sidecar shop/own spec.ingress[0].connectionPool", true},
	} {
		p := New(Settings{Snapshot: snapshot(c.records...)})
		h := p.Join(node("shop", "web-1", "app=web"))
		name := xds.InboundCluster(180)
		if got := clusterOf(t, h.Set(), name).GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue(); got != c.limit {
			t.Errorf("%d connections, want %d", got, c.limit)
		}
		for name, seconds := range map[string]int64{name: int64(c.limit), xds.InboundPassthrough: 1, xds.Passthrough: 1, xds.BlackHole: 9} {
			if got := clusterOf(t, h.Set(), name).GetConnectTimeout().GetSeconds(); got != seconds {
				t.Errorf("%s: a connection may take %d s, want %d", name, got, seconds)
			}
		}
		specs := p.Explain(h, xds.Cluster, name)
		if got := specs[0].(cluster.Inbound).PoolAt.String(); got != c.at {
			t.Errorf("the pool stands at %s, want %s", got, c.at)
		}
		if is := len(specs) == 2 && specs[1].(TrafficSource).Sidecar != nil; is != c.bringer {
			t.Errorf("%s: the Sidecar is named: %v", c.at, is)
		}
	}
}

// gRPC's client receives the endpoints of a headless service, and of a service whose rule lets the client choose the
// address: it connects to no other addresses.
func TestProxylessFindsEndpoints(t *testing.T) {
	const dns = "{hosts: [db.example.com], exportTo: ['*'], external: true, ports: [{number: 80, name: grpc, protocol: PROTOCOL_GRPC}], resolution: RESOLUTION_DNS}"
	s := snapshot(
		svc(t, "shop/pods", "None", "grpc:80:GRPC"),
		svc(t, "shop/echo", "10.96.0.2", "grpc:80:GRPC"),
		rec(t, model.KindServiceEntry, "shop/db", dns),
		rec(t, model.KindEndpoints, "shop/"+model.ServiceEntryPrefix+"db", "{hosts: [db.example.com], ports: [{name: grpc, number: 80}], endpoints: [{address: db.example.com, namespace: shop}]}"),
		rec(t, model.KindDestinationRule, "shop/db", "{host: db.example.com, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}}"),
		rec(t, model.KindDestinationRule, "shop/echo", "{host: echo.shop.svc.cluster.local, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}}"),
	)
	apps, proxies := planFor(s, app("shop", "c-1")), planFor(s, node("shop", "c-1"))
	for host, want := range map[string]clusterv3.Cluster_DiscoveryType{
		"pods.shop.svc.cluster.local": clusterv3.Cluster_EDS, "echo.shop.svc.cluster.local": clusterv3.Cluster_EDS, "db.example.com": clusterv3.Cluster_LOGICAL_DNS,
	} {
		name := xds.OutboundCluster(80, "", host)
		if c := clusterOf(t, apps, name); c.GetType() != want || c.GetEdsClusterConfig().GetServiceName() == xds.BlackHole {
			t.Errorf("%s: %v", host, c)
		}
		if c := clusterOf(t, proxies, name); c.GetType() != clusterv3.Cluster_ORIGINAL_DST {
			t.Errorf("%s of an Envoy: %v", host, c.GetType())
		}
	}
}

// A missing destination of a host that is an alias is replaced by the alias's host, at the port of the request (as
// observed of istiod 1.31), for HTTP routes and TCP routes.
func TestDestinationsThatAreNotThere(t *testing.T) {
	alias := rec(t, model.KindService, "shop/other", "{hosts: [other.shop.svc.cluster.local], exportTo: ['*'], aliasFor: web.shop.svc.cluster.local, ports: [{number: 9080, name: http, protocol: PROTOCOL_HTTP}]}")
	s := snapshot(alias, svc(t, "shop/web", "10.96.0.1", "http:9080:HTTP"), svc(t, "shop/front", "10.96.0.2", "http:80:HTTP"), svc(t, "shop/db", "10.96.0.3", "tcp:9000:TCP"),
		rec(t, model.KindVirtualService, "shop/front", "{hosts: [front.shop.svc.cluster.local], http: [{route: [{destination: {host: other.shop.svc.cluster.local, subset: none}}]}]}"),
		rec(t, model.KindVirtualService, "shop/db", "{hosts: [db.shop.svc.cluster.local], tcp: [{route: [{destination: {host: other.shop.svc.cluster.local, subset: none}}]}]}"))
	set := planFor(s, node("shop", "c-1"))
	const want, wantTCP = "outbound|80|none|web.shop.svc.cluster.local", "outbound|9000|none|web.shop.svc.cluster.local"
	for _, vh := range routesOfSet(t, set, "80").VirtualHosts {
		if strings.HasPrefix(vh.Name, "front.") && vh.Routes[0].GetRoute().GetCluster() != want {
			t.Errorf("the http rule goes to %s, want %s", vh.Routes[0].GetRoute().GetCluster(), want)
		}
	}
	if l := listenerOf(t, set, "10.96.0.3_9000"); !strings.Contains(fmt.Sprint(l), wantTCP) {
		t.Errorf("the tcp rule does not go to %s: %v", wantTCP, l)
	}
}

// If several rules of a host are merged, a destination's hash policy names the rule that states it, and not another
// rule of the subset.
func TestHashNamesItsRule(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"),
		rec(t, model.KindDestinationRule, "shop/hash@1", "{host: web.shop.svc.cluster.local, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}"),
		rec(t, model.KindDestinationRule, "shop/subsets@2", "{host: web.shop.svc.cluster.local, subsets: [{name: v1, trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}}}]}"),
		rec(t, model.KindVirtualService, "shop/web", "{hosts: [web.shop.svc.cluster.local], http: [{route: [{destination: {host: web.shop.svc.cluster.local, subset: v1}}]}]}"))
	p := New(Settings{Snapshot: s})
	h := p.Join(node("shop", "c-1"))
	for _, spec := range p.Explain(h, xds.Route, "80") {
		if v, is := spec.(vhost.Spec); is {
			for _, d := range v.Destinations.All() {
				if d.Hash == nil || d.Rule == nil || d.Rule.Key.Name != "hash" {
					t.Errorf("%v is hashed by %v of %v", d.Cluster, d.Hash, d.Rule)
				}
			}
		}
	}
}

// If a rule states the TLS mode, the cluster does not change with the modes of its endpoints.
func TestRuleDecidesAloneAboutTLS(t *testing.T) {
	n := node("shop", "c-1")
	n.Caps |= xds.CapIdentity
	p := New(Settings{Snapshot: snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"),
		rec(t, model.KindDestinationRule, "shop/web", "{host: web.shop.svc.cluster.local, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}"))})
	h := p.Join(n)
	const name = "outbound|80||web.shop.svc.cluster.local"
	before := h.Set().Types[xds.Cluster].Get(name)
	off := peerAuthentication(t, "shop/v1", "app: web, version: v1", "mtls: {mode: DISABLE}")
	p.Apply(p.Snapshot().Apply(2, []model.Record{off}, nil))
	if after := h.Set().Types[xds.Cluster].Get(name); after != before {
		t.Errorf("another cluster: %v", p.Explain(h, xds.Cluster, name))
	}
	if spec := p.Explain(h, xds.Cluster, name)[0].(cluster.Outbound); spec.MTLSDisabled != "" {
		t.Error("the Spec has what its builder does not draw")
	}
}

// Assignments and clusters that contain their endpoints agree on the endpoints without mTLS: PeerAuthentications
// determine them, unless a rule states the TLS mode.
func TestEndpointsWithoutMTLSInClusters(t *testing.T) {
	for _, c := range []struct {
		mode, rule string
		labelled   bool // the endpoints have the label tlsMode: istio
	}{
		{"PERMISSIVE", "", true}, {"DISABLE", "", false}, {"PERMISSIVE", "DISABLE", false}, {"DISABLE", "ISTIO_MUTUAL", true}, {"PERMISSIVE", "ISTIO_MUTUAL", true},
	} {
		n := node("shop", "c-1")
		n.Caps |= xds.CapIdentity
		records := []model.Record{security(t, model.KindPeerAuthentication, "shop/default", "{mtls: {mode: "+c.mode+"}}", &securityv1.PeerAuthentication{})}
		for name, resolution := range map[string]string{"static": "RESOLUTION_EDS", "named": "RESOLUTION_DNS"} {
			host := name + ".example.com"
			records = append(records,
				rec(t, model.KindServiceEntry, "shop/"+name, "{hosts: ["+host+"], exportTo: ['*'], ports: [{number: 80, name: http, protocol: PROTOCOL_HTTP}], resolution: "+resolution+"}"),
				rec(t, model.KindEndpoints, "shop/"+model.ServiceEntryPrefix+name, "{hosts: ["+host+"], ports: [{name: http, number: 80}], endpoints: [{address: 10.1.0.1, namespace: shop, mtls: true}]}"))
			if c.rule != "" {
				records = append(records, rec(t, model.KindDestinationRule, "shop/"+name, "{host: "+host+", trafficPolicy: {tls: {mode: "+c.rule+"}}}"))
			}
		}
		set := planFor(snapshot(records...), n)
		inside := clusterOf(t, set, "outbound|80||named.example.com").GetLoadAssignment()
		beside := assignment(t, set, "outbound|80||static.example.com")
		for where, all := range map[string]fmt.Stringer{"the cluster": inside, "the assignment": beside} {
			if is := strings.Contains(all.String(), "tlsMode"); is != c.labelled {
				t.Errorf("mode %s, rule %q: the endpoint of %s says that it takes mTLS: %v", c.mode, c.rule, where, is)
			}
		}
	}
}
