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

// envoyFilter returns the patches of one EnvoyFilter, from the YAML of its configPatches.
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

// build builds a listener and decodes its body.
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

// manager returns the connection manager that ends a chain; proxy returns the TCP proxy that ends it.
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

// shape returns a listener as text, with one line per chain: its match and its destination.
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

// Every listener satisfies the constraints of Envoy's API, also inside the Anys, with and without Istio's own
// extensions.
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

// Equal Specs make equal bytes, also from new copies of the records.
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
