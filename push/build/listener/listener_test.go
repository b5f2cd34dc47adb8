package listener

import (
	"fmt"
	"slices"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

type builder interface {
	Build() (*xds.Resource, error)
}

var (
	strs    intern.Table[string]
	chains  intern.Table[Chain]
	targets intern.Table[Target]
	ports   intern.Table[InboundPort]
	patches intern.Table[model.Patch]
)

const istioCaps = xds.CapALPN | xds.CapIstioStats | xds.CapMetadataExchange

func mesh(t testing.TB, edit func(*meshv1.MeshConfig)) *model.Mesh {
	t.Helper()
	m := model.MeshDefaults()
	if edit != nil {
		edit(m)
	}
	r, err := model.New(model.MeshKey, 0, m)
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.Mesh)
}

// stock is a stock Envoy in a mesh without configuration.
func stock(testing.TB) Common { return Common{Mesh: model.DefaultMesh(), Caps: xds.StockCaps} }

func rule(t testing.TB, text string) *model.DestinationRule {
	t.Helper()
	spec := &networkingv1.DestinationRule{}
	unyaml(t, text, spec)
	r, err := model.New(model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "db"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.DestinationRule)
}

// envoyFilter is the patches of one EnvoyFilter, from the YAML of its configPatches.
func envoyFilter(t testing.TB, text string) []model.Patch {
	t.Helper()
	spec := &networkingv1.EnvoyFilter{}
	unyaml(t, "configPatches:\n"+text, spec)
	r, err := model.New(model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	var all []model.Patch
	for i := range spec.ConfigPatches {
		all = append(all, model.Patch{Filter: r.(*model.EnvoyFilter), Index: i})
	}
	return all
}

func unyaml(t testing.TB, text string, into proto.Message) {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(j, into)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// build builds, and reads the body back.
func build(t testing.TB, b builder) (*xds.Resource, *listenerv3.Listener) {
	t.Helper()
	r, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	l := &listenerv3.Listener{}
	if err := proto.Unmarshal(r.Body(), l); err != nil {
		t.Fatal(err)
	}
	if r.Type != xds.Listener || r.Name != l.Name {
		t.Fatalf("resource %v %q holds a listener %q", r.Type, r.Name, l.Name)
	}
	return r, l
}

// manager is the connection manager that ends a chain; proxy is the TCP proxy that does.
func manager(t testing.TB, c *listenerv3.FilterChain) *hcmv3.HttpConnectionManager {
	t.Helper()
	m := &hcmv3.HttpConnectionManager{}
	unpackLast(t, c, m)
	return m
}

func proxy(t testing.TB, c *listenerv3.FilterChain) *tcpv3.TcpProxy {
	t.Helper()
	m := &tcpv3.TcpProxy{}
	unpackLast(t, c, m)
	return m
}

func unpackLast(t testing.TB, c *listenerv3.FilterChain, into proto.Message) {
	t.Helper()
	if len(c.GetFilters()) == 0 {
		t.Fatalf("chain %q has no filters", c.GetName())
	}
	if err := c.Filters[len(c.Filters)-1].GetTypedConfig().UnmarshalTo(into); err != nil {
		t.Fatalf("last filter of chain %q: %v", c.GetName(), err)
	}
}

func filterNames(m *hcmv3.HttpConnectionManager) (names []string) {
	for _, f := range m.HttpFilters {
		names = append(names, f.Name)
	}
	return names
}

func listenerFilterNames(l *listenerv3.Listener) (names []string) {
	for _, f := range l.ListenerFilters {
		names = append(names, f.Name)
	}
	return names
}

// shape is a listener in one line per chain: what it matches and where it leads.
func shape(t testing.TB, l *listenerv3.Listener) []string {
	t.Helper()
	one := func(kind string, c *listenerv3.FilterChain) string {
		s := kind + c.Name
		m := c.GetFilterChainMatch()
		if p := m.GetDestinationPort(); p != nil {
			s += fmt.Sprintf(" port=%d", p.Value)
		}
		for _, r := range m.GetPrefixRanges() {
			s += fmt.Sprintf(" %s/%d", r.AddressPrefix, r.PrefixLen.GetValue())
		}
		for _, n := range m.GetServerNames() {
			s += " sni=" + n
		}
		if m.GetTransportProtocol() != "" {
			s += " " + m.GetTransportProtocol()
		}
		if m.GetApplicationProtocols() != nil {
			s += fmt.Sprintf(" %v", m.GetApplicationProtocols())
		}
		if len(c.Filters) == 0 {
			return s
		}
		last := c.Filters[len(c.Filters)-1].GetTypedConfig()
		for _, f := range c.Filters[:len(c.Filters)-1] {
			s += " +" + f.Name
		}
		if last.MessageIs(&tcpv3.TcpProxy{}) {
			p := proxy(t, c)
			s += " > tcp " + p.GetCluster()
			for _, w := range p.GetWeightedClusters().GetClusters() {
				s += fmt.Sprintf("%s:%d ", w.Name, w.Weight)
			}
			return s
		}
		if !last.MessageIs(&hcmv3.HttpConnectionManager{}) {
			return s + " " + string(last.MessageName())
		}
		m2 := manager(t, c)
		if r := m2.GetRds(); r != nil {
			return s + " > rds " + r.RouteConfigName
		}
		return s + " > http " + m2.GetRouteConfig().VirtualHosts[0].Routes[0].GetRoute().GetCluster()
	}
	var out []string
	for _, c := range l.FilterChains {
		out = append(out, one("chain ", c))
	}
	if l.DefaultFilterChain != nil {
		out = append(out, one("default ", l.DefaultFilterChain))
	}
	return out
}

func wantLines(t testing.TB, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:")
		for _, g := range got {
			t.Errorf("  %q,", g)
		}
		t.Errorf("want:")
		for _, w := range want {
			t.Errorf("  %q,", w)
		}
	}
}

// specs is a broad set of Specs: the tests of constraints, of determinism and Envoy's own judgement run over all.
func specs(t testing.TB) map[string]builder {
	logs := func(edit func(*meshv1.MeshConfig)) Common {
		c := stock(t)
		c.Mesh = mesh(t, func(m *meshv1.MeshConfig) {
			m.AccessLogFile = "/dev/stdout"
			if edit != nil {
				edit(m)
			}
		})
		return c
	}
	tcp := func(c Chain, clusters ...string) Chain {
		var to []Target
		for _, name := range clusters {
			to = append(to, Target{Cluster: name, Weight: uint32(100 / len(clusters))})
		}
		c.Targets, c.StatPrefix = targets.List(to...), clusters[0]
		return c
	}
	db := tcp(Chain{Policy: rule(t, `
host: db
trafficPolicy:
  loadBalancer: {consistentHash: {useSourceIp: true}}
  connectionPool: {tcp: {idleTimeout: 30s, maxConnectionDuration: 60s}}`)}, "outbound|9000||db.shop")
	sni := tcp(Chain{SNI: strs.List("b.com", "A.com", "*.c.com")}, "outbound|443|v1|tls.shop", "outbound|443|v2|tls.shop")
	cidr := tcp(Chain{CIDRs: strs.List("10.1.2.3/16", "10.9.0.1")}, "outbound|9000||cidr.shop")
	all := func(c Common) VirtualInbound {
		var list []InboundPort
		for p := range model.Protocol_name {
			list = append(list, InboundPort{Port: 8000 + uint32(p), Protocol: model.Protocol(p),
				Cluster: xds.InboundCluster(8000 + uint32(p)), Host: "web.shop", ServicePort: 80 + uint32(p)})
		}
		slices.SortFunc(list, func(a, b InboundPort) int { return int(a.Port) - int(b.Port) })
		return VirtualInbound{Common: c, Port: 15006, Ports: ports.List(list...), Passthrough: true}
	}
	closed := all(stock(t))
	closed.Closed = true
	tproxy := all(logs(nil))
	tproxy.Transparent, tproxy.Passthrough = true, false
	none := stock(t)
	none.Caps = 0
	secured := func(m MTLS) VirtualInbound {
		v := all(stock(t))
		v.Caps |= xds.CapIdentity
		list := slices.Clone(v.Ports.All())
		for i := range list {
			list[i].MTLS = m
		}
		v.Ports, v.Rest = ports.List(list...), m
		return v
	}
	some := secured(Strict)
	some.Rest = Plain
	norm := func(n meshv1.MeshConfig_ProxyPathNormalization_NormalizationType) Outbound {
		return Outbound{Common: logs(func(m *meshv1.MeshConfig) {
			m.AccessLogEncoding = meshv1.MeshConfig_JSON
			m.PathNormalization = &meshv1.MeshConfig_ProxyPathNormalization{Normalization: n}
		}), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough}
	}
	inner := InboundPort{Port: 9080, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "inbound|9080||", Host: "web.shop", ServicePort: 9080}
	return map[string]builder{
		"http":             Outbound{Common: logs(nil), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough},
		"http registry":    Outbound{Common: stock(t), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.BlackHole},
		"http egress":      Outbound{Common: stock(t), Name: "127.0.0.1_9080", Bind: "127.0.0.1", Port: 9080, Route: "9080", BindToPort: true},
		"http unix":        Outbound{Common: stock(t), Name: "unix:///tmp/e.sock_0", Bind: "unix:///tmp/e.sock", Route: "unix:///tmp/e.sock"},
		"sniffed":          Outbound{Common: stock(t), Name: "10.96.0.11_9000", Bind: "10.96.0.11", Port: 9000, Route: "db.shop:9000", Sniff: true, TCP: chains.List(db)},
		"sniffed alone":    Outbound{Common: stock(t), Name: "10.96.0.11_9000", Bind: "10.96.0.11", Port: 9000, Route: "db.shop:9000", Sniff: true},
		"tcp":              Outbound{Common: logs(nil), Name: "10.96.0.11_9000", Bind: "10.96.0.11", Port: 9000, TCP: chains.List(db)},
		"tcp chains":       Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000, TCP: chains.List(sni, cidr, db, sni, cidr, db)},
		"tcp ipv6":         Outbound{Common: stock(t), Name: "fd00::1_9000", Bind: "fd00::1", Port: 9000, TCP: chains.List(tcp(Chain{CIDRs: strs.List("fd00::1", "fd01::/32")}, "outbound|9000||db.shop"))},
		"mixed":            Outbound{Common: stock(t), Name: "0.0.0.0_443", Bind: "0.0.0.0", Port: 443, Route: "443", TCP: chains.List(sni, cidr), Fallback: xds.Passthrough},
		"fallback alone":   Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000, Fallback: xds.Passthrough},
		"nothing":          Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000},
		"no targets":       Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000, TCP: chains.List(Chain{})},
		"no capabilities":  Outbound{Common: none, Name: "0.0.0.0_443", Bind: "0.0.0.0", Port: 443, Route: "443", Sniff: true, TCP: chains.List(sni, cidr, db)},
		"no normalisation": norm(meshv1.MeshConfig_ProxyPathNormalization_NONE),
		"merge slashes":    norm(meshv1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES),
		"decode slashes":   norm(meshv1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES),
		"log formats": Outbound{Common: logs(func(m *meshv1.MeshConfig) {
			m.AccessLogFormat = "%START_TIME% %REQ_WITHOUT_QUERY(:PATH)%"
		}), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80"},
		"json format": Outbound{Common: logs(func(m *meshv1.MeshConfig) {
			m.AccessLogEncoding, m.AccessLogFormat = meshv1.MeshConfig_JSON, `{"a":"%PROTOCOL%","b":{"c":"%DURATION%"}}`
		}), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80"},
		"virtual outbound":             VirtualOutbound{Common: logs(nil), Port: 15001, Passthrough: true},
		"virtual outbound tproxy":      VirtualOutbound{Common: stock(t), Port: 15001, Transparent: true},
		"virtual inbound":              all(logs(nil)),
		"virtual inbound closed":       closed,
		"virtual inbound strict":       secured(Strict),
		"virtual inbound permissive":   secured(Permissive),
		"virtual inbound, some strict": some,
		"virtual inbound tproxy":       tproxy,
		"virtual inbound no ports":     VirtualInbound{Common: stock(t), Port: 15006, Passthrough: true},
		"virtual inbound no caps":      all(none),
		"ingress":                      Ingress{Common: logs(nil), Name: "127.0.0.1_9080", Bind: "127.0.0.1", Inner: inner},
		"ingress unix":                 Ingress{Common: stock(t), Name: "unix:///tmp/i.sock_9080", Bind: "unix:///tmp/i.sock", Inner: inner},
		"ingress closed":               Ingress{Common: stock(t), Name: "127.0.0.1_9080", Bind: "127.0.0.1", Inner: inner, Closed: true},
		"ingress tcp": Ingress{Common: stock(t), Name: "127.0.0.1_9000", Bind: "127.0.0.1",
			Inner: InboundPort{Port: 9000, Protocol: model.Protocol_PROTOCOL_TCP, Cluster: "inbound|9000||"}},
		"ingress auto": Ingress{Common: stock(t), Name: "127.0.0.1_9000", Bind: "127.0.0.1",
			Inner: InboundPort{Port: 9000, Cluster: "inbound|9000||"}},
		"ingress udp": Ingress{Common: stock(t), Name: "127.0.0.1_9000", Bind: "127.0.0.1",
			Inner: InboundPort{Port: 9000, Protocol: model.Protocol_PROTOCOL_UDP, Cluster: "inbound|9000||"}},
	}
}

// Everything keeps the constraints of Envoy's API, also inside the Anys, with and without Istio's own extensions.
func TestConstraints(t *testing.T) {
	for name, b := range specs(t) {
		t.Run(name, func(t *testing.T) {
			_, l := build(t, b)
			if err := patch.Check(l); err != nil {
				t.Error(err)
			}
		})
	}
	c := stock(t)
	c.Caps |= istioCaps
	c.Mesh = mesh(t, func(m *meshv1.MeshConfig) {
		m.DefaultProviders = &meshv1.MeshConfig_DefaultProviders{Metrics: []string{"prometheus"}}
	})
	_, l := build(t, Outbound{Common: c, Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough})
	if err := patch.Check(l); err != nil {
		t.Error(err)
	}
}

// Equal Specs give equal bytes, made from records of their own each time.
func TestDeterminism(t *testing.T) {
	first, again := specs(t), specs(t)
	for name, b := range first {
		r, _ := build(t, b)
		for range 5 {
			s, _ := build(t, again[name])
			if r.Version != s.Version {
				t.Fatalf("%s: built again it differs", name)
			}
		}
	}
}

func TestBadAddresses(t *testing.T) {
	for _, c := range []struct {
		b    builder
		want string
	}{
		{Outbound{Name: "l", Bind: "localhost", Port: 80}, `listener l: bind "localhost": neither an IP address nor unix:// and a path`},
		{Outbound{Name: "l", Bind: "1.1.1.1", Port: 65536}, `listener l: port 65536: want 1 to 65535`},
		{Outbound{Name: "l", Bind: "1.1.1.1"}, `listener l: port 0: want 1 to 65535`},
		{Outbound{Name: "l", Bind: "unix://"}, `listener l: bind "unix://": path is missing`},
		{Ingress{Name: "l", Bind: ""}, `listener l: bind "": neither an IP address nor unix:// and a path`},
		{VirtualInbound{}, `listener virtualInbound: port 0: want 1 to 65535`},
		{VirtualOutbound{}, `listener virtualOutbound: port 0: want 1 to 65535`},
	} {
		if _, err := c.b.Build(); err == nil || err.Error() != c.want {
			t.Errorf("%+v: got error %v, want %s", c.b, err, c.want)
		}
	}
}
