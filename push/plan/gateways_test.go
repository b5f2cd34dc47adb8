package plan

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// routerOf returns a gateway with label app: gw.
func routerOf(namespace, name string) view.Node {
	n := node(namespace, name, "app=gw")
	n.Kind = view.Router
	return n
}

// gatewayPlanner plans for one gateway, and a sidecar, in a mesh of some records.
func gatewayPlanner(records ...model.Record) (*Planner, *pool.Pool, *Handle) {
	shared := &pool.Pool{}
	p := New(Settings{Pool: shared, Snapshot: snapshot(records...)})
	p.Join(node("a", "web"))
	return p, shared, p.Join(routerOf("edge", "gw"))
}

// edited plans a change of one record.
func edited(p *Planner, put model.Record) {
	s := p.Snapshot()
	p.Apply(s.Apply(s.Revision()+1, []model.Record{put}, nil))
}

func boundRule(t testing.TB, i int, prefix string) model.Record {
	return rec(t, model.KindVirtualService, fmt.Sprintf("shop/v%d@1", i), fmt.Sprintf(
		"{hosts: [h%d.test], gateways: [edge/front], http: [{match: [{uri: {prefix: %s}}], route: [{destination: {host: s0.a.svc.cluster.local}}]}]}", i, prefix))
}

// One of 3,000 hosts of a gateway changes: one virtual host is encoded, and all listeners and clusters stay.
func TestGatewayEncodesOneHost(t *testing.T) {
	const hosts = 3000
	records := []model.Record{svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), eps(t, "a/s0-1", "{name: http, number: 8080}", "10.1.0.1"),
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")}
	for i := range hosts {
		records = append(records, boundRule(t, i, "/a"))
	}
	p, shared, gw := gatewayPlanner(records...)
	before := gw.Set()
	if n := len(routesOfSet(t, before, "http.80").VirtualHosts); n != hosts {
		t.Fatalf("%d virtual hosts, want %d", n, hosts)
	}
	if got, want := measure(shared, func() { edited(p, boundRule(t, 1234, "/b")) }), (work{routes: 1, hosts: 1}); got != want {
		t.Errorf("an edit encodes %+v, want %+v", got, want)
	}
	after := gw.Set()
	for kind := range xds.NumTypes {
		if d := manifest.Diff(before.Types[kind], after.Types[kind]); (len(d) > 0) != (kind == xds.Route) {
			t.Errorf("%d %ss differ", len(d), kind.Noun())
		}
	}
}

// chainsOf returns the chains of a listener by their first SNI, and the listener without them, encoded.
func chainsOf(t testing.TB, set *manifest.Set, name string) (chains map[string][]byte, rest []byte) {
	t.Helper()
	encode := func(m proto.Message) []byte {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	l, chains := listenerOf(t, set, name), map[string][]byte{}
	for _, c := range l.FilterChains {
		chains[strings.Join(append(c.GetFilterChainMatch().GetServerNames(), ""), " ")] = encode(c)
	}
	l.FilterChains = []*listenerv3.FilterChain{}
	return chains, encode(l)
}

// A new service at an AUTO_PASSTHROUGH gateway encodes one chain; the bytes of all other chains stay.
func TestNewServiceIsOneChain(t *testing.T) {
	entrance := func(i int) []model.Record {
		name := fmt.Sprintf("s%d", i)
		return []model.Record{svc(t, "a/"+name, fmt.Sprintf("10.96.0.%d", i+1), "http:80:HTTP"), rec(t, model.KindEndpoints, "a/"+name+"-1",
			fmt.Sprintf("hosts: [%s.a.svc.cluster.local]\nports: [{name: http, number: 8080}]\nendpoints: [{address: 10.1.0.%d, health: HEALTH_READY, mtls: true}]", name, i+1))}
	}
	records := []model.Record{rec(t, model.KindGateway, "edge/cross",
		"{selector: {app: gw}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: ['*.local'], tls: {mode: AUTO_PASSTHROUGH}}]}")}
	for i := range 40 {
		records = append(records, entrance(i)...)
	}
	p, shared, gw := gatewayPlanner(records...)
	before, rest := chainsOf(t, gw.Set(), "0.0.0.0_15443")
	s := p.Snapshot()
	made := measure(shared, func() { p.Apply(s.Apply(s.Revision()+1, entrance(40), nil)) })
	after, now := chainsOf(t, gw.Set(), "0.0.0.0_15443")
	if len(before) != 40 || len(after) != 41 || !bytes.Equal(rest, now) {
		t.Errorf("%d chains, then %d; the listener's head changes: %v", len(before), len(after), !bytes.Equal(rest, now))
	}
	for name, chain := range before {
		if !bytes.Equal(chain, after[name]) {
			t.Errorf("chain %s changes", name)
		}
	}
	// One chain, and a virtual host of the sidecar. The gateway has two clusters of the service, the sidecar one.
	if want := (work{clusters: 3, endpoints: 2, listeners: 1, routes: 1, hosts: 2}); made != want {
		t.Errorf("a new service encodes %+v, want %+v", made, want)
	}
}

// One of 40 HTTPS servers of a port changes: one chain is encoded; the bytes of all other chains stay.
func TestEditOfServerIsOneChain(t *testing.T) {
	server := func(i int, more string) model.Record {
		return rec(t, model.KindGateway, fmt.Sprintf("edge/g%d@%d", i, i), fmt.Sprintf("{selector: {app: gw}, servers: [{"+
			"port: {number: 443, name: https, protocol: HTTPS}, hosts: [h%d.test], tls: {mode: SIMPLE, credentialName: cert%s}}]}", i, more))
	}
	var records []model.Record
	for i := range 40 {
		records = append(records, server(i, ""))
	}
	p, shared, gw := gatewayPlanner(records...)
	before, rest := chainsOf(t, gw.Set(), "0.0.0.0_443")
	made := measure(shared, func() { edited(p, server(17, ", minProtocolVersion: TLSV1_3")) })
	after, now := chainsOf(t, gw.Set(), "0.0.0.0_443")
	if want := (work{listeners: 1, hosts: 1}); made != want {
		t.Errorf("an edit encodes %+v, want %+v", made, want)
	}
	if len(before) != 40 || !bytes.Equal(rest, now) {
		t.Errorf("%d chains; the listener's head changes: %v", len(before), !bytes.Equal(rest, now))
	}
	for name, chain := range before {
		if bytes.Equal(chain, after[name]) != (name != "h17.test ") {
			t.Errorf("chain %s: same bytes %v", name, bytes.Equal(chain, after[name]))
		}
	}
}

// An edit of a Sidecar moves no gateway, and an edit of a Gateway those alone that it selects: the scope and the sets
// of others stay the same values.
func TestGatewaysAreReplannedAlone(t *testing.T) {
	front := func(name, selector string, port int) model.Record {
		return rec(t, model.KindGateway, "edge/"+name, fmt.Sprintf(
			"{selector: {app: %s}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['*']}]}", selector, port))
	}
	sidecar := func(egress string) model.Record {
		return rec(t, model.KindSidecar, "a/s", "egress: [{hosts: ['"+egress+"']}]")
	}
	p, _, gw := gatewayPlanner(svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), front("front", "gw", 80), front("back", "other", 80),
		boundRule(t, 0, "/a"), sidecar("*/*"))
	n := routerOf("a", "other")
	n.Labels = map[string]string{"app": "other"}
	other, web := p.Join(n), p.Join(node("a", "web"))
	for _, c := range []struct {
		name  string
		edit  model.Record
		moves *Handle // the one that moves
	}{
		{"a Gateway that selects gw", front("front", "gw", 81), gw},
		{"a Gateway that selects other", front("back", "other", 81), other},
		{"a Sidecar", sidecar("b/*"), web},
	} {
		type held struct {
			scope *scope
			set   *manifest.Set
		}
		now := func(h *Handle) held { return held{h.planned.Load().scope, h.Set()} }
		before := map[*Handle]held{}
		for _, h := range []*Handle{gw, other, web} {
			before[h] = now(h)
		}
		edited(p, c.edit)
		for h, was := range before {
			same := true
			for kind := range xds.NumTypes {
				same = same && was.set.Types[kind] == h.Set().Types[kind]
			}
			if is := now(h); same == (h == c.moves) || h != c.moves && is.scope != was.scope {
				t.Errorf("%s: for %s/%s all stays: %v, the scope too: %v", c.name, h.Node.Namespace, h.Node.Name, same, is.scope == was.scope)
			}
		}
	}
}

// A VirtualService may have the host "blackhole", beside which a route configuration needs no virtual host of its own.
func TestHostNamedBlackhole(t *testing.T) {
	front := rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")
	named := rec(t, model.KindVirtualService, "shop/named@1", "{hosts: [blackhole], gateways: [edge/front], "+
		"http: [{route: [{destination: {host: s0.a.svc.cluster.local}}]}]}")
	domains := func(gw *Handle) (all []string) {
		for _, vh := range routesOfSet(t, gw.Set(), "http.80").VirtualHosts {
			all = append(all, fmt.Sprint(vh.Name, vh.Domains))
		}
		return all
	}
	p, _, gw := gatewayPlanner(front, svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"))
	for _, c := range []struct {
		put  model.Record
		want []string
	}{
		{front, []string{"blackhole:80[*]"}},
		{named, []string{"blackhole:80[blackhole]"}},
		{boundRule(t, 0, "/a"), []string{"blackhole:80[blackhole]", "h0.test:80[h0.test]"}},
	} {
		edited(p, c.put)
		if got := domains(gw); !slices.Equal(got, c.want) {
			t.Errorf("after %v: %v, want %v", c.put.Meta().Key, got, c.want)
		}
	}
}

// The service of a provider of access logs appears after the gateway has joined: its listeners report to it.
func TestGatewayReportsToNewService(t *testing.T) {
	p, _, gw := gatewayPlanner(
		rec(t, model.KindMesh, "/mesh", `{extensionProviders: [{name: lines, envoyTcpAls: {service: lines.a.svc.cluster.local, port: 9000}}],
			defaultProviders: {accessLogging: [lines]}, rootNamespace: istio-system}`),
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))
	const cluster = "outbound|9000||lines.a.svc.cluster.local"
	reports := func() bool { return strings.Contains(listenerOf(t, gw.Set(), "0.0.0.0_80").String(), cluster) }
	if reports() {
		t.Fatal("a listener reports to a service that is not there")
	}
	edited(p, svc(t, "a/lines", "10.96.0.9", "tcp:9000:TCP"))
	if !reports() {
		t.Error("the listener does not report to the provider's service")
	}
}
