package plan

import (
	"slices"
	"strings"
	"testing"

	securityv1 "istio.io/api/security/v1beta1"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// app returns an application with gRPC's own xDS client and a certificate provider.
func app(namespace, name string, labels ...string) view.Node {
	n := node(namespace, name, labels...)
	n.Kind, n.Mode, n.Caps = view.Proxyless, view.None, xds.CapIdentity
	return n
}

// The resource names are those of Istio's control plane, since bootstraps and applications rely on them.
func TestProxylessNames(t *testing.T) {
	s := snapshot(
		svc(t, "shop/echo", "10.96.0.1", "grpc:7070:GRPC"),
		svc(t, "data/db", "10.96.0.2", "tcp:5432:TCP"),
		rec(t, model.KindServiceEntry, "shop/literal", "{hosts: [db.data], exportTo: ['*'], ports: [{number: 5432, name: tcp, protocol: PROTOCOL_TCP}], resolution: RESOLUTION_EDS}"),
		rec(t, model.KindDestinationRule, "shop/echo", "{host: echo.shop.svc.cluster.local, subsets: [{name: v2, labels: {version: v2}}]}"),
	)
	set := planFor(s, app("shop", "echo-1", "app=echo"))
	p := New(Settings{Snapshot: s})
	h := p.Join(app("shop", "echo-1", "app=echo"))
	for kind := range xds.NumTypes {
		for r := range h.Set().Types[kind].All() {
			if len(p.Explain(h, kind, r.Name)) == 0 {
				t.Errorf("%s %s is not explained", kind.Noun(), r.Name)
			}
		}
	}
	for kind, want := range map[xds.Type]string{
		xds.Cluster: "BlackHoleCluster outbound|5432||db.data outbound|5432||db.data.svc.cluster.local outbound|7070|v2|echo.shop.svc.cluster.local outbound|7070||echo.shop.svc.cluster.local",
		xds.Listener: "db.data.svc.cluster.local:5432 db.data.svc:5432 db.data:5432 echo.shop.svc.cluster.local:7070 echo.shop.svc:7070 echo.shop:7070 echo:7070 " +
			"xds.istio.io/grpc/lds/inbound/0.0.0.0:17070 xds.istio.io/grpc/lds/inbound/10.1.9.9:17070 xds.istio.io/grpc/lds/inbound/127.0.0.1:17070 xds.istio.io/grpc/lds/inbound/[::1]:17070 xds.istio.io/grpc/lds/inbound/[::]:17070",
		xds.Route: "outbound|5432||db.data outbound|5432||db.data.svc.cluster.local outbound|7070||echo.shop.svc.cluster.local",
	} {
		if got := names(set, kind); got != want {
			t.Errorf("%ss:\n got %s\nwant %s", kind.Noun(), got, want)
		}
	}
	// A short name resolves to the host's full name.
	l := decode(t, set, xds.Listener, "db.data:5432", &listenerv3.Listener{})
	m := &hcmv3.HttpConnectionManager{}
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(m); err != nil || m.GetRds().GetRouteConfigName() != "outbound|5432||db.data" {
		t.Errorf("db.data:5432 goes to %s, %v", m.GetRds().GetRouteConfigName(), err)
	}
}

// A cluster uses mTLS if all of its endpoints require it. Endpoints that change this arrive together with the cluster,
// and not by the fast path.
func TestProxylessClusterTakesMTLSAsAWhole(t *testing.T) {
	endpoints := func(mtls ...string) model.Record {
		var list []string
		for i, one := range mtls {
			list = append(list, "{address: 10.1.0."+string(rune('1'+i))+", serviceAccount: sa, mtls: "+one+"}")
		}
		return rec(t, model.KindEndpoints, "shop/echo-1", "{hosts: [echo.shop.svc.cluster.local], ports: [{name: grpc, number: 8080}], endpoints: ["+strings.Join(list, ", ")+"]}")
	}
	peers := func(mode string) model.Record {
		return security(t, model.KindPeerAuthentication, "shop/default", "{mtls: {mode: "+mode+"}}", &securityv1.PeerAuthentication{})
	}
	p := New(Settings{Snapshot: snapshot(svc(t, "shop/echo", "10.96.0.1", "grpc:7070:GRPC"), endpoints("true"), peers("STRICT"))})
	h := p.Join(app("shop", "client"))
	const name = "outbound|7070||echo.shop.svc.cluster.local"
	secured := func() bool {
		return decode(t, h.Set(), xds.Cluster, name, &clusterv3.Cluster{}).TransportSocket != nil
	}
	apply := func(r model.Record, wantRest int) {
		t.Helper()
		c := p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{r}, nil)
		_, rest := p.PlanEndpoints(c, false)
		if len(rest) != wantRest {
			t.Errorf("%d edits are left for the plan of configuration, want %d", len(rest), wantRest)
		}
		if len(rest) > 0 {
			p.Apply(mirror.Change{New: c.New, Edits: rest})
		}
		if diff := p.Check(h); len(diff) > 0 {
			t.Errorf("not as planned from scratch: %v", diff)
		}
	}
	if !secured() {
		t.Error("all endpoints take mTLS, and the cluster does not speak it")
	}
	apply(endpoints("true", "true"), 0)
	if !secured() {
		t.Error("with two endpoints the cluster speaks no mTLS")
	}
	apply(endpoints("true", "false"), 1)
	if secured() {
		t.Error("one endpoint takes no mTLS, and the cluster speaks it")
	}
	if found := problemsOf(p, "demand mTLS: clients send plaintext to all"); found != 1 {
		t.Errorf("%d problems, want one", found)
	}
	apply(endpoints("true", "true"), 1)
	if !secured() {
		t.Error("all take mTLS again")
	}
	apply(peers("PERMISSIVE"), 1)
	if secured() {
		t.Error("the servers may be Envoys that take both, and tell mTLS of the mesh by what gRPC does not offer")
	}
}

// A rule that is planned in the background makes endpoints determine mTLS; endpoints that change meanwhile arrive
// together with the cluster.
func TestProxylessClusterOfAReplan(t *testing.T) {
	endpoints := func(mtls string) model.Record {
		return rec(t, model.KindEndpoints, "shop/echo-1", "{hosts: [echo.shop.svc.cluster.local], ports: [{name: grpc, number: 8080}], endpoints: [{address: 10.1.0.1, serviceAccount: sa, mtls: "+mtls+"}]}")
	}
	p := New(Settings{Snapshot: snapshot(svc(t, "shop/echo", "10.96.0.1", "grpc:7070:GRPC"), endpoints("true"))})
	p.backgroundFrom = 0
	h := p.Join(app("shop", "client"))
	strict := security(t, model.KindPeerAuthentication, "shop/default", "{mtls: {mode: STRICT}}", &securityv1.PeerAuthentication{})
	c := p.Snapshot().Apply(2, []model.Record{strict}, nil)
	p.Begin(c)
	p.Step(func() bool { return false })
	next := c.New.Apply(3, []model.Record{endpoints("false")}, nil)
	_, rest := p.PlanEndpoints(next, false)
	p.End()
	if len(rest) > 0 {
		p.Apply(mirror.Change{New: next.New, Edits: rest})
	} else {
		p.PlanEndpoints(mirror.Change{New: next.New}, false)
	}
	if diff := p.Check(h); len(diff) > 0 {
		t.Errorf("not as planned from scratch: %v", diff)
	}
}

func problemsOf(p *Planner, words string) (n int) {
	for _, one := range p.Problems() {
		if strings.Contains(one.Message, words) {
			n++
		}
	}
	return n
}

// How a gRPC server accepts connections, and which callers it permits.
func TestProxylessServer(t *testing.T) {
	for _, c := range []struct {
		name    string
		peers   string
		labels  []string
		caps    xds.Caps
		policy  string
		tokens  string
		mtls    bool
		filters string
		absent  bool
		problem string
	}{
		{name: "nothing stated, clients are not told of mTLS", caps: xds.CapIdentity},
		{name: "nothing stated, clients are told", labels: []string{"security.istio.io/tlsMode=istio"}, caps: xds.CapIdentity, mtls: true, filters: "domain"},
		{name: "clients are told, without a certificate", labels: []string{"security.istio.io/tlsMode=istio"}},
		{name: "strict", peers: "{mtls: {mode: STRICT}}", caps: xds.CapIdentity, mtls: true, filters: "domain"},
		{name: "strict without a certificate", peers: "{mtls: {mode: STRICT}}", absent: true, problem: "demands mTLS"},
		{name: "off", peers: "{mtls: {mode: DISABLE}}", labels: []string{"security.istio.io/tlsMode=istio"}, caps: xds.CapIdentity},
		{name: "rules", caps: xds.CapIdentity, policy: "{rules: [{to: [{operation: {paths: [/a]}}]}]}", filters: "allow"},
		{name: "a rule that servers cannot enforce", caps: xds.CapIdentity, policy: "{action: DENY, rules: [{when: [{key: connection.sni, values: [a]}]}]}", filters: "allow nobody", problem: "do not support it"},
		{name: "a provider of external authorization", caps: xds.CapIdentity, policy: "{action: CUSTOM, provider: {name: a}, rules: [{}]}", filters: "allow nobody", problem: "do not support external authorization"},
		{name: "a rule about tokens", caps: xds.CapIdentity, policy: "{rules: [{from: [{source: {requestPrincipals: ['*']}}]}]}", filters: "allow nobody", problem: "do not verify tokens"},
		{name: "tokens", caps: xds.CapIdentity, tokens: "{jwtRules: [{issuer: a, jwks: b}]}", filters: "allow nobody", problem: "do not verify tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			records := []model.Record{svc(t, "shop/echo", "10.96.0.1", "grpc:7070:GRPC")}
			if c.peers != "" {
				records = append(records, security(t, model.KindPeerAuthentication, "shop/default", c.peers, &securityv1.PeerAuthentication{}))
			}
			if c.policy != "" {
				records = append(records, security(t, model.KindAuthorizationPolicy, "shop/p", c.policy, &securityv1.AuthorizationPolicy{}))
			}
			if c.tokens != "" {
				records = append(records, security(t, model.KindRequestAuthentication, "shop/t", c.tokens, &securityv1.RequestAuthentication{}))
			}
			n := app("shop", "echo-1", append(c.labels, "app=echo")...)
			n.Caps = c.caps
			p := New(Settings{Snapshot: snapshot(records...)})
			set := p.Join(n).Set()
			if c.problem != "" && problemsOf(p, c.problem) == 0 {
				t.Errorf("problems %v, want one with %q", p.Problems(), c.problem)
			}
			const name = "xds.istio.io/grpc/lds/inbound/0.0.0.0:17070"
			if c.absent {
				if set.Types[xds.Listener].Get(name) != nil {
					t.Error("there is a listener")
				}
				return
			}
			chain := decode(t, set, xds.Listener, name, &listenerv3.Listener{}).FilterChains[0]
			tls := &tlsv3.DownstreamTlsContext{}
			if chain.TransportSocket != nil {
				if err := chain.TransportSocket.GetTypedConfig().UnmarshalTo(tls); err != nil {
					t.Fatal(err)
				}
			}
			if tls.RequireClientCertificate.GetValue() != c.mtls {
				t.Errorf("mTLS %v, want %v", tls, c.mtls)
			}
			if got := filtersOf(t, chain); got != c.filters {
				t.Errorf("filters %q, want %q", got, c.filters)
			}
		})
	}
}

// filtersOf returns the last name components of the chain's RBAC filters, each followed by "nobody" if it has no
// policy. The last filter of the chain must be the router.
func filtersOf(t *testing.T, chain *listenerv3.FilterChain) string {
	t.Helper()
	m := &hcmv3.HttpConnectionManager{}
	if err := chain.Filters[0].GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range m.HttpFilters[:len(m.HttpFilters)-1] {
		rbac := &rbacfilterv3.RBAC{}
		if err := f.GetTypedConfig().UnmarshalTo(rbac); err != nil {
			t.Fatal(err)
		}
		out = append(out, f.Name[strings.LastIndexByte(f.Name, '.')+1:])
		if len(rbac.Rules.Policies) == 0 {
			out = append(out, "nobody")
		}
	}
	if last := m.HttpFilters[len(m.HttpFilters)-1].Name; last != "envoy.filters.http.router" {
		t.Errorf("the last filter is %s", last)
	}
	return strings.Join(slices.Compact(out), " ")
}

// Rules that read the client's labels, and other rules for some clients, result in other routes and clusters for these
// clients only.
func TestProxylessVariants(t *testing.T) {
	s := snapshot(
		svc(t, "shop/echo", "10.96.0.1", "grpc:7070:GRPC"),
		svc(t, "shop/front", "10.96.0.2", "grpc:7070:GRPC"),
		rec(t, model.KindVirtualService, "shop/front", "{hosts: [front.shop.svc.cluster.local], http: [{match: [{sourceLabels: {tier: x}}], timeout: 3s, route: [{destination: {host: echo.shop.svc.cluster.local}}]}, "+
			"{route: [{destination: {host: echo.shop.svc.cluster.local, subset: v2}}]}]}"),
		rec(t, model.KindDestinationRule, "shop/echo", "{host: echo.shop.svc.cluster.local, workloadSelector: {matchLabels: {role: tester}}, subsets: [{name: v2, labels: {version: v2}}]}"),
	)
	const route, subset = "outbound|7070||front.shop.svc.cluster.local", "outbound|7070|v2|echo.shop.svc.cluster.local"
	for _, c := range []struct {
		name, labels string
		to           string
		subset       bool
	}{
		{"no labels", "app=c", xds.BlackHole, false},
		{"a rule reads the label", "tier=x", "outbound|7070||echo.shop.svc.cluster.local", false},
		{"a rule for some clients", "role=tester", subset, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := planFor(s, app("shop", "c-1", c.labels))
			routes := routesOfSet(t, set, route).VirtualHosts[0].Routes
			if got := routes[0].GetRoute().GetCluster(); got != c.to {
				t.Errorf("the first route goes to %s, want %s", got, c.to)
			}
			if is := set.Types[xds.Cluster].Get(subset) != nil; is != c.subset {
				t.Errorf("cluster of the subset: %v", is)
			}
		})
	}
}
