package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// ownerOf returns what the owner of a gateway has: a Gateway of an age, with further servers, and a service with its
// routes.
func ownerOf(t testing.TB, age int, servers string) []model.Record {
	return []model.Record{
		rec(t, model.KindGateway, fmt.Sprintf("edge/front@%d", age), `{selector: {app: gw}, servers: [
			{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']},
			{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['www.test'], tls: {mode: SIMPLE, credentialName: cert}},
			{port: {number: 444, name: pass, protocol: TLS}, hosts: ['*.test'], tls: {mode: PASSTHROUGH}},
			{port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']},
			{port: {number: 15443, name: cross, protocol: TLS}, hosts: ['*.local'], tls: {mode: AUTO_PASSTHROUGH}}`+servers+`]}`),
		rec(t, model.KindVirtualService, "edge/own@1", `{hosts: ['own.test'], gateways: [edge/front],
			tls: [{match: [{sniHosts: [own.test]}], route: [{destination: {host: s0.edge.svc.cluster.local}}]}],
			tcp: [{match: [{port: 9000}], route: [{destination: {host: s0.edge.svc.cluster.local}}]}]}`),
		svc(t, "edge/s0", "10.96.1.1", "http:80:HTTP"), rec(t, model.KindEndpoints, "edge/s0-1",
			"hosts: [s0.edge.svc.cluster.local]\nports: [{name: http, number: 8080}]\nendpoints: [{address: 10.1.5.1, health: HEALTH_READY, mtls: true}]"),
	}
}

// tenantEdit returns an edit of a tenant in namespace a or b: of a Gateway or VirtualService, or of a Service, its
// endpoints, a ServiceEntry or a DestinationRule.
func tenantEdit(m *mesh) (put model.Record, key model.Key) {
	for {
		put, key := m.entrance()
		if m.one(2) {
			put, key = m.edit()
		}
		if put != nil {
			key = put.Meta().Key
		}
		kinds := []model.Kind{model.KindGateway, model.KindVirtualService, model.KindService, model.KindEndpoints, model.KindServiceEntry,
			model.KindDestinationRule}
		if (key.Namespace == "a" || key.Namespace == "b") && slices.Contains(kinds, key.Kind) {
			return put, key
		}
	}
}

// editedOrGone plans an edit of a record, or its deletion.
func editedOrGone(p *Planner, put model.Record, key model.Key) {
	if put != nil {
		edited(p, put)
		return
	}
	s := p.Snapshot()
	p.Apply(s.Apply(s.Revision()+1, nil, []model.Key{key}))
}

// Whatever a younger tenant edits (VirtualServices, Services, endpoints, ServiceEntries, DestinationRules, a Gateway of
// its namespace), the bytes of a listener outside its filter chains stay, so that Envoy drains nobody else's
// connections. So do the chains of others, and the chain that all HTTP servers of a port share.
// Promise: security-gateways.md#make-a-gateway-fail
func TestTenantsChangeChainsAlone(t *testing.T) {
	kinds := map[model.Kind]int{}
	changed, beside := 0, 0
	further := []string{"", ", {port: {number: 443, name: http, protocol: HTTP}, hosts: ['*']}",
		", {port: {number: 443, name: all, protocol: HTTPS}, hosts: ['*', own.test], tls: {mode: MUTUAL, credentialName: cert}}"}
	for seed := range uint64(12) {
		p, _, gw := gatewayPlanner(ownerOf(t, 1, further[seed%3])...)
		heads := map[string][]byte{}
		names := []string{"0.0.0.0_80", "0.0.0.0_443", "0.0.0.0_444", "0.0.0.0_9000", "0.0.0.0_15443"}
		for _, name := range names {
			_, heads[name] = chainsOf(t, gw.Set(), name)
		}
		shared, _ := chainsOf(t, gw.Set(), "0.0.0.0_80")
		secure, _ := chainsOf(t, gw.Set(), "0.0.0.0_443")
		m := newMesh(t, firstEntrances+100+seed)
		m.clock = 10 // all that the tenants have is younger
		m.protocols = rand.New(rand.NewPCG(seed, 1))
		for range 100 {
			put, key := tenantEdit(m)
			kinds[key.Kind]++
			was := gw.Set()
			editedOrGone(p, put, key)
			for _, name := range names {
				if was.Types[xds.Listener].Get(name) != gw.Set().Types[xds.Listener].Get(name) {
					changed++
				}
				if _, now := chainsOf(t, gw.Set(), name); !bytes.Equal(now, heads[name]) {
					t.Fatalf("seed %d: %v changes listener %s outside its chains", seed, key, name)
				}
			}
			if now, _ := chainsOf(t, gw.Set(), "0.0.0.0_80"); !bytes.Equal(now[""], shared[""]) {
				t.Fatalf("seed %d: %v changes the chain that the HTTP servers of port 80 share", seed, key)
			}
			if now, _ := chainsOf(t, gw.Set(), "0.0.0.0_443"); !bytes.Equal(now["www.test "], secure["www.test "]) {
				t.Fatalf("seed %d: %v changes the chain of another namespace's HTTPS server", seed, key)
			} else if seed%3 > 0 && !bytes.Equal(now[""], secure[""]) {
				t.Fatalf("seed %d: %v changes the chain of connections without SNI", seed, key)
			} else if seed%3 == 2 && now["*.test "] != nil && !bytes.Contains(now["own.test "], []byte(".all.front.edge")) {
				t.Fatalf("seed %d: %v takes a name that another namespace's server has beside *", seed, key)
			} else if now["*.test "] != nil && seed%3 == 2 {
				beside++
			}
		}
	}
	if t.Logf("edits %v, changes of listeners %d, wildcards above a name %d", kinds, changed, beside); changed < 30 || len(kinds) < 6 || beside < 3 {
		t.Errorf("edits %v change listeners %d times; %d times there is a wildcard above a name", kinds, changed, beside)
	}
}

// servedAt returns the served servers of a router with the label app: gw, by listener and by all properties of a server
// (Gateway, index, content, served hosts).
func servedAt(s *mirror.Snapshot) map[string]map[string]gateways.Server {
	r := gateways.Router{Wildcards: []string{"0.0.0.0"}}
	for g := range s.All(model.KindGateway) {
		if gateways.Selects(g.(*model.Gateway), map[string]string{"app": "gw"}) {
			r.Gateways = append(r.Gateways, g.(*model.Gateway))
		}
	}
	all := map[string]map[string]gateways.Server{}
	listeners, _ := gateways.Merge(r)
	for _, l := range listeners {
		of := map[string]gateways.Server{}
		for _, one := range slices.Concat(l.Plain, l.TLS) {
			of[fmt.Sprint(one.Name(), " ", one.Index, " ", one.Spec(), " ", one.Hosts)] = one
		}
		all[l.Name("0.0.0.0")] = of
	}
	return all
}

// A tenant may also be older than others, come and go: a server of another namespace that is served before and after
// its edit keeps the bytes of its listener outside the filter chains. If it ends TLS, it keeps its chain, and if it
// shares the chain of the port's HTTP servers, that one.
// Promise: security-gateways.md#make-a-gateway-fail
func TestOlderTenantsChangeChainsAlone(t *testing.T) {
	compared, older, gone := 0, 0, 0
	for seed := range uint64(10) {
		p, _, gw := gatewayPlanner(ownerOf(t, 60, "")...)
		m := newMesh(t, firstEntrances+200+seed)
		m.protocols = rand.New(rand.NewPCG(seed, 1))
		for range 150 {
			put, key := tenantEdit(m)
			if key.Kind == model.KindGateway && put == nil {
				gone++
			} else if key.Kind == model.KindGateway && put.Meta().Created < 60 {
				older++
			}
			was, before := gw.Set(), servedAt(p.Snapshot())
			editedOrGone(p, put, key)
			for name, after := range servedAt(p.Snapshot()) {
				compared += keepsBytes(t, p, fmt.Sprintf("seed %d: %v", seed, key), key.Namespace, name, before[name], after, was, gw.Set())
			}
		}
	}
	t.Logf("%d comparisons, %d edits of older Gateways, %d deletions", compared, older, gone)
	if compared < 3000 || older < 80 || gone < 40 {
		t.Errorf("%d comparisons, %d edits of older Gateways, %d deletions", compared, older, gone)
	}
}

// loses reports whether the Gateway of a server has a problem of lost connections.
func loses(p *Planner, s gateways.Server) bool {
	return slices.ContainsFunc(p.Problems(), func(one model.Problem) bool {
		return one.Key == s.Gateway.Key && one.Field == fmt.Sprintf("spec.servers[%d]", s.Index) && strings.Contains(one.Message, "belong to VirtualService ")
	})
}

// keepsBytes compares a listener before and after an edit of a namespace, for the servers of other namespaces that are
// served before and after. It returns the number of such servers.
func keepsBytes(
	t *testing.T, p *Planner, what, editor, name string, before, after map[string]gateways.Server, was, now *manifest.Set,
) (compared int) {
	t.Helper()
	if was.Types[xds.Listener].Get(name) == nil || now.Types[xds.Listener].Get(name) == nil {
		return 0 // a TCP server has lost its rule, or got one
	}
	chains, head := chainsOf(t, was, name)
	chainsNow, headNow := chainsOf(t, now, name)
	for key, s := range after {
		if _, both := before[key]; !both || s.Gateway.Key.Namespace == editor {
			continue
		}
		compared++
		if !bytes.Equal(head, headNow) {
			t.Fatalf("%s changes listener %s of %s outside its chains", what, name, key)
		}
		chain := ""
		switch {
		case s.HTTP() && s.TLS():
			for _, one := range gateways.Names(s.Hosts) {
				chain += one + " "
			}
		case !s.HTTP():
			continue
		}
		route := cmp.Or(s.RouteName(), "http."+name[strings.LastIndex(name, "_")+1:])
		has := func(all map[string][]byte) bool { // a chain whose TLS has a fault closes its connections
			return bytes.Contains(all[chain], []byte(route)) || bytes.Contains(all[chain], []byte("BlackHoleCluster"))
		}
		if !has(chainsNow) && !loses(p, s) {
			t.Fatalf("%s takes the chain %q of %s at listener %s, and there is no problem: %s", what, chain, key, name, problemTexts(p))
		} else if !has(chainsNow) || !has(chains) {
			continue // the connections belong, or belonged, to an older rule of a VirtualService
		}
		if !bytes.Equal(chains[chain], chainsNow[chain]) {
			t.Fatalf("%s changes the chain %q of %s at listener %s", what, chain, key, name)
		}
	}
	return compared
}

// Age belongs to a Gateway, not to its hosts. An edit of a tenant's older Gateway takes the owner's host or port. A
// tenant's younger Gateway takes the host while the owner's Gateway is created again. The owner's Gateway then has a
// problem that names the tenant's. PILOT_SCOPE_GATEWAY_TO_NAMESPACE prevents both. A test of deploy/docs evaluates the
// policy that refuses the tenant's Gateway.
// Promise: security-gateways.md#allowed-by-istios-defaults
func TestOlderGatewayTakesHosts(t *testing.T) {
	owner := func(age int) model.Record {
		return rec(t, model.KindGateway, fmt.Sprintf("edge/front@%d", age), "{selector: {app: gw}, servers: ["+
			"{port: {number: 443, name: https, protocol: HTTPS}, hosts: [pay.test], tls: {mode: SIMPLE, credentialName: c}}]}")
	}
	tenant := func(age int, server string) model.Record {
		return rec(t, model.KindGateway, fmt.Sprintf("evil/own@%d", age), "{selector: {app: gw}, servers: [{"+server+"}]}")
	}
	const (
		harmless = "port: {number: 443, name: x, protocol: HTTPS}, hosts: [evil.test], tls: {mode: SIMPLE, credentialName: c}"
		host     = "port: {number: 443, name: x, protocol: HTTPS}, hosts: [pay.test], tls: {mode: SIMPLE, credentialName: c}"
		port     = "port: {number: 443, name: x, protocol: HTTP}, hosts: ['*']"
	)
	gone := model.Key{Kind: model.KindGateway, Namespace: "edge", Name: "front"}
	for _, c := range []struct {
		name   string
		before []model.Record
		edit   func(p *Planner)
		field  string // of the owner's problem
	}{
		{"an older Gateway takes a host", []model.Record{owner(2), tenant(1, harmless)},
			func(p *Planner) { edited(p, tenant(1, host)) }, "spec.servers[0].hosts[0]"},
		{"an older Gateway takes a port", []model.Record{owner(2), tenant(1, harmless)},
			func(p *Planner) { edited(p, tenant(1, port)) }, "spec.servers[0].port.protocol"},
		{"the owner's Gateway is created again", []model.Record{owner(1), tenant(2, host)}, func(p *Planner) {
			editedOrGone(p, nil, gone)
			edited(p, owner(3))
		}, "spec.servers[0].hosts[0]"},
		{"a younger Gateway", []model.Record{owner(1), tenant(2, harmless)}, func(p *Planner) { edited(p, tenant(2, host)) }, ""},
	} {
		for _, scoped := range []bool{false, true} {
			p := New(Settings{Pool: &pool.Pool{}, Snapshot: snapshot(c.before...)})
			n := routerOf("edge", "gw")
			n.Routers.OwnNamespace = scoped
			gw := p.Join(n)
			serves := func() bool {
				return gw.Set().Types[xds.Listener].Get("0.0.0.0_443") != nil &&
					strings.Contains(listenerOf(t, gw.Set(), "0.0.0.0_443").String(), "https.443.https.front.edge")
			}
			if !serves() {
				t.Fatalf("%s: not served before", c.name)
			}
			c.edit(p)
			lost := c.field != "" && !scoped
			if serves() == lost {
				t.Errorf("%s, scoped %v: the owner's host is served: %v", c.name, scoped, serves())
			}
			named := slices.ContainsFunc(p.Problems(), func(one model.Problem) bool {
				return one.Key == gone && one.Field == c.field && one.Severity == problem.Error &&
					strings.Contains(one.Message, "Gateway evil/own")
			})
			if named != lost {
				t.Errorf("%s, scoped %v: the owner's Gateway has a problem: %v, want %v; all: %v",
					c.name, scoped, named, lost, p.Problems())
			}
		}
	}
}
