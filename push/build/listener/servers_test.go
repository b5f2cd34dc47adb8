package listener

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

var (
	fragments intern.Table[*xds.Fragment]
	secrets   intern.Table[Secret]
)

// gatewayProxy is a gateway of Istio's image with an identity.
func gatewayProxy(t testing.TB) Common {
	c := stock(t)
	c.Caps |= xds.CapIdentity | xds.CapFileSecrets
	return c
}

// configured is a Common whose ProxyConfig is this JSON.
func configured(t testing.TB, c Common, text string) Common {
	t.Helper()
	config := &meshv1.ProxyConfig{}
	unyaml(t, text, config)
	settings, faults := proxyconfig.Of(config)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	c.Proxy = settings.Listeners
	return c
}

// httpServer and tcpServer are chains of servers without TLS.
func httpServer(c Common, route string, names ...string) ServerChain {
	return ServerChain{Common: c, Port: 8443, Names: strs.List(names...), HTTP: ServerHTTP{Route: route, StatPrefix: "outbound_0.0.0.0_8443"}}
}

func tcpServer(c Common, cluster string, names ...string) ServerChain {
	return ServerChain{Common: c, Port: 8443, Names: strs.List(names...), TCP: chainTo(Chain{Protocol: model.Protocol_PROTOCOL_TCP}, cluster)}
}

// secret is TLS with the certificate of a Secret.
func secret(name string) ServerTLS {
	return ServerTLS{Mode: simple, Secrets: secrets.List(Secret{Name: "kubernetes://" + name})}
}

// fragmentOf draws a chain.
func fragmentOf(t testing.TB, s ServerChain) *xds.Fragment {
	t.Helper()
	f, err := s.Fragment()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// chainOf draws a chain and decodes it.
func chainOf(t testing.TB, s ServerChain) *listenerv3.FilterChain {
	t.Helper()
	l := &listenerv3.Listener{}
	if err := proto.Unmarshal(fragmentOf(t, s).Bytes, l); err != nil {
		t.Fatal(err)
	}
	return l.FilterChains[0]
}

// gatewayOf is a listener of port 8443 with some chains.
func gatewayOf(t testing.TB, c Common, chains ...ServerChain) Servers {
	t.Helper()
	var all []*xds.Fragment
	for _, s := range chains {
		all = append(all, fragmentOf(t, s))
	}
	return Servers{Common: c, Name: "0.0.0.0_8443", Bind: "0.0.0.0", Port: 8443, Chains: fragments.List(all...)}
}

func serverSpecs(t testing.TB) map[string]builder {
	c := gatewayProxy(t)
	ended := func(s ServerChain, tls ServerTLS) ServerChain { s.TLS = tls; return s }
	auto := tcpServer(c, "outbound_.80_._.web.shop.svc.cluster.local", "outbound_.80_._.web.shop.svc.cluster.local")
	auto.Protocols = strs.List("istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2")
	files := ServerTLS{Mode: simple, Certificate: "/c", Key: "/k", Certificate2: "/c2", Key2: "/k2"}
	edge := configured(t, logged(t, nil), `{connectionSettings: {profile: EDGE}, gatewayTopology: {numTrustedProxies: 1, proxyProtocol: {}}}`)
	opaque := gatewayOf(t, c, tcpServer(c, "db"))
	opaque.Opaque = true
	http3 := ended(httpServer(c, "https.443.a.gw.shop", "a.test"), secret("a"))
	http3.QUIC = true
	udp := gatewayOf(t, c, http3)
	udp.Name, udp.QUIC = "udp_0.0.0.0_8443", true
	closed, closedTCP := httpServer(c, "http.8443"), tcpServer(c, "db", "db.test")
	closed.Closed, closedTCP.Closed = true, true
	unix := gatewayOf(t, c, httpServer(c, "http.0.unix:///tmp/g.sock"))
	unix.Name, unix.Bind, unix.Port = "unix:///tmp/g.sock_0", "unix:///tmp/g.sock", 0
	mesh := ServerTLS{Mode: networkingv1.ServerTLSSettings_ISTIO_MUTUAL}
	return map[string]builder{
		"gateway http": gatewayOf(t, c, httpServer(c, "http.8443")),
		"gateway https": gatewayOf(t, c, ended(httpServer(c, "https.443.a.gw.shop", "a.test"), secret("a")), ended(httpServer(c, "https.443.b.gw.shop", "*.b.test"), files),
			ended(tcpServer(c, "db", "db.test"), secret("db")), tcpServer(c, "outbound|443||pass.shop", "pass.test"), httpServer(c, "http.8443")),
		"gateway mesh":   gatewayOf(t, c, ended(httpServer(c, "https.443.m.gw.shop", "m.test"), mesh), ended(tcpServer(c, "db"), mesh)),
		"gateway auto":   gatewayOf(t, c, auto),
		"gateway tcp":    opaque,
		"gateway closed": gatewayOf(t, c, closed, closedTCP),
		"gateway edge":   gatewayOf(t, edge, httpServer(edge, "http.8443")),
		"gateway unix":   unix,
		"gateway http3":  udp,
	}
}

// The rope is the whole message: its head, and the chains in order.
func TestServersAreOneListener(t *testing.T) {
	c := gatewayProxy(t)
	one, two := httpServer(c, "https.443.a.gw.shop", "a.test"), tcpServer(c, "db", "db.test")
	one.Extensions = extensionLists.List(extension.Filter{Extension: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "w"}})
	s := gatewayOf(t, c, one, two)
	r, l := build(t, s)
	want, err := s.head()
	if err != nil {
		t.Fatal(err)
	}
	want.FilterChains = []*listenerv3.FilterChain{chainOf(t, one), chainOf(t, two)}
	if !proto.Equal(l, want) {
		t.Errorf("got %v, want %v", l, want)
	}
	names := filterNames(manager(t, l.FilterChains[0]))
	needs := []xds.Ref{{Type: xds.Route, Name: "https.443.a.gw.shop"}, {Type: xds.Extension, Name: names[0]}}
	if !slices.Equal(r.Needs, needs) {
		t.Errorf("needs %v, want %v", r.Needs, needs)
	}
	if len(gatewayOf(t, c, one, one).needs()) != 2 {
		t.Error("what two chains ask for is there twice")
	}
	if again, _ := build(t, gatewayOf(t, c, one, two)); again.Version != r.Version {
		t.Error("equal Specs, other versions")
	}
	_, err = (Servers{Name: "l", Bind: "0.0.0.0", Port: 80}).Build()
	if err == nil || err.Error() != "listener l: filter chains are missing" {
		t.Errorf("no chain: %v", err)
	}
}

// The servers of a listener, and their order, change nothing outside of its filter chains: Envoy replaces single chains
// then, and the connections of the others go on. Promise: no edit of a server drains another's connections.
func TestChainsLeaveTheHead(t *testing.T) {
	c := gatewayProxy(t)
	secure := func(name string) ServerChain {
		s := httpServer(c, "https.443."+name, name)
		s.TLS = secret(name)
		return s
	}
	plain, pass, tcp := httpServer(c, "http.8443"), tcpServer(c, "pass", "pass.test"), tcpServer(c, "db")
	var first []byte
	a, b := secure("a.test"), secure("b.test")
	for _, chains := range [][]ServerChain{{plain}, {a}, {a, plain}, {plain, b, a}, {pass, tcp}, {a, pass, plain}} {
		s := gatewayOf(t, c, chains...)
		r, _ := build(t, s)
		body := r.Body()
		for _, f := range s.Chains.All() {
			if !bytes.Contains(body, f.Bytes) {
				t.Fatalf("%s: its bytes are others", f.Name)
			}
			body = bytes.Replace(body, f.Bytes, nil, 1)
		}
		if first == nil {
			first = body
		}
		if !bytes.Equal(body, first) {
			t.Errorf("%d chains, the first %v: the head differs", len(chains), chains[0].Names.All())
		}
	}
}

// The head is the socket's, and the proxy's; what inspects connections is there from the first server on.
func TestServersHead(t *testing.T) {
	c := gatewayProxy(t)
	without := c
	without.Caps &^= xds.CapTLSInspector
	dual := c
	dual.Families = xds.BothFamilies
	const inspector, header = "envoy.filters.listener.tls_inspector", "envoy.filters.listener.proxy_protocol"
	for name, w := range map[string]struct {
		spec    Servers
		filters []string
		goesOn  bool // of connections that say nothing
		also    int
		buffer  uint32
	}{
		"plain HTTP":                    {Servers{Common: c}, []string{inspector}, true, 0, 0},
		"TCP alone":                     {Servers{Common: c, Opaque: true}, nil, false, 0, 0},
		"behind the PROXY protocol":     {Servers{Common: configured(t, c, `gatewayTopology: {proxyProtocol: {}}`)}, []string{header, inspector}, false, 0, 0},
		"TCP behind the PROXY protocol": {Servers{Common: configured(t, c, `gatewayTopology: {proxyProtocol: {}}`), Opaque: true}, []string{header}, false, 0, 0},
		"no inspector":                  {Servers{Common: without}, nil, false, 0, 0},
		"HTTP/3":                        {Servers{Common: configured(t, c, `gatewayTopology: {proxyProtocol: {}}`), QUIC: true}, nil, false, 0, 0},
		"both families":                 {Servers{Common: dual}, []string{inspector}, true, 1, 0},
		"HTTP/3 of both families":       {Servers{Common: dual, QUIC: true}, nil, false, 1, 0},
		"EDGE":                          {Servers{Common: configured(t, c, `connectionSettings: {profile: EDGE}`)}, []string{inspector}, true, 0, 32768},
		"EDGE with a buffer of its own": {Servers{Common: configured(t, c, `connectionSettings: {profile: EDGE, listenerPerConnectionBufferLimitBytes: 9}`)}, []string{inspector}, true, 0, 9},
	} {
		w.spec.Name, w.spec.Bind, w.spec.Port, w.spec.Chains = "l", "0.0.0.0", 8443, fragments.List(fragmentOf(t, httpServer(c, "r")))
		_, l := build(t, w.spec)
		if !slices.Equal(listenerFilterNames(l), w.filters) || l.ContinueOnListenerFiltersTimeout != w.goesOn ||
			len(l.AdditionalAddresses) != w.also || l.PerConnectionBufferLimitBytes.GetValue() != w.buffer ||
			l.TrafficDirection.String() != "OUTBOUND" || l.MaxConnectionsToAcceptPerSocketEvent.GetValue() != 1 {
			t.Errorf("%s: %v", name, l)
		}
		protocols := []string{l.Address.GetSocketAddress().GetProtocol().String()}
		for _, a := range l.AdditionalAddresses {
			protocols = append(protocols, a.Address.GetSocketAddress().GetProtocol().String())
		}
		if udp := w.spec.QUIC; slices.Contains(protocols, "TCP") == udp || slices.Contains(protocols, "UDP") != udp ||
			(l.UdpListenerConfig.GetQuicOptions() != nil) != udp {
			t.Errorf("%s: %v %v", name, protocols, l.UdpListenerConfig)
		}
	}
	if _, err := (Servers{Name: "l", Bind: "unix:///s", QUIC: true, Chains: fragments.List(fragmentOf(t, httpServer(c, "r")))}).Build(); err == nil {
		t.Error("HTTP/3 on a Unix socket")
	}
}

// A patch finds chains by what they match, listeners by name and bound port; chains that none changes keep their bytes,
// and a patch that changes nothing makes no other version.
func TestServersPatched(t *testing.T) {
	c := gatewayProxy(t)
	a, b := httpServer(c, "https.443.a.gw.shop", "a.test"), httpServer(c, "https.443.b.gw.shop", "b.test")
	a.TLS, b.TLS = secret("a"), secret("b")
	plain := gatewayOf(t, c, a, b)
	before, _ := build(t, plain)
	lua := func(context, listener, chain string) string {
		return fmt.Sprintf(`
- applyTo: HTTP_FILTER
  match: {context: %s, listener: {%s filterChain: {%s filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
  patch:
    operation: INSERT_BEFORE
    value: {name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}`, context, listener, chain)
	}
	for name, w := range map[string]struct {
		text    string
		changes []int // chains
		head    bool
	}{
		"by SNI":              {lua("GATEWAY", "", "sni: b.test,"), []int{1}, false},
		"by bound port":       {lua("GATEWAY", "portNumber: 8443,", ""), []int{0, 1}, false},
		"by another port":     {lua("GATEWAY", "portNumber: 443,", ""), nil, false},
		"of a sidecar":        {lua("SIDECAR_OUTBOUND", "", ""), nil, false},
		"of the head":         {"\n- {applyTo: LISTENER, match: {context: GATEWAY, listener: {name: 0.0.0.0_8443}}, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 7}}}", nil, true},
		"one chain removed":   {"\n- {applyTo: FILTER_CHAIN, match: {context: GATEWAY, listener: {filterChain: {sni: a.test}}}, patch: {operation: REMOVE}}", []int{0}, false},
		"every chain removed": {"\n- {applyTo: FILTER_CHAIN, match: {context: GATEWAY}, patch: {operation: REMOVE}}", []int{0, 1}, false},
	} {
		s := plain
		s.Patches = patches.List(envoyFilter(t, w.text)...)
		r, l := build(t, s)
		changed := len(w.changes) > 0 || w.head
		if (r.Version != before.Version) != changed || (len(s.Effective()) == 1) != changed || len(s.Problems()) > 0 {
			t.Errorf("%s: version %s after %s, effective %d, problems %v", name, r.Version, before.Version, len(s.Effective()), s.Problems())
		}
		body := r.Body()
		for i, f := range plain.Chains.All() {
			if bytes.Contains(body, f.Bytes) == slices.Contains(w.changes, i) {
				t.Errorf("%s: chain %d changes: %v", name, i, slices.Contains(w.changes, i))
			}
		}
		if name == "every chain removed" {
			wantLines(t, shape(t, l), []string{"chain  > tcp BlackHoleCluster"})
		}
	}
}

// A patch for which Envoy would refuse the listener is left out and named; the others stay.
func TestServersWithoutBadPatches(t *testing.T) {
	c := gatewayProxy(t)
	s := gatewayOf(t, c, httpServer(c, "http.8443"))
	s.Patches = patches.List(envoyFilter(t, `
- {applyTo: FILTER_CHAIN, match: {context: GATEWAY}, patch: {operation: MERGE, value: {transport_socket_connect_timeout: 3s}}}
- {applyTo: LISTENER, match: {context: GATEWAY}, patch: {operation: MERGE, value: {listener_filters: [{name: ""}]}}}`)...)
	_, l := build(t, s)
	timeout := l.FilterChains[0].TransportSocketConnectTimeout.AsDuration().Seconds()
	if problems := s.Problems(); len(problems) != 1 || !strings.Contains(problems[0].Error(), "configPatches[1]") || timeout != 3 {
		t.Errorf("problems %v, chains %v", problems, l.FilterChains)
	}
	if !s.Patched() || gatewayOf(t, c, httpServer(c, "r")).Patched() {
		t.Error("Patched")
	}
}
