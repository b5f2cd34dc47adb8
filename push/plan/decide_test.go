package plan

import (
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

const web = "web.shop.svc.cluster.local"

// clusterNames returns the names of the outbound clusters without their prefix.
func clusterNames(set *manifest.Set) string {
	var out []string
	for _, r := range set.Types[xds.Cluster].Sorted() {
		if name, ok := strings.CutPrefix(r.Name, "outbound|"); ok {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// entryOf returns a ServiceEntry of one host with port 80.
func entryOf(t testing.TB, name, host, more string) model.Record {
	if !strings.Contains(more, "exportTo") {
		more += "exportTo: ['*']\n"
	}
	return rec(t, model.KindServiceEntry, name, "hosts: ['"+host+"']\nports: [{number: 80, name: http, protocol: PROTOCOL_HTTP}]\n"+more)
}

func sidecarOf(t testing.TB, name, text string) model.Record {
	return rec(t, model.KindSidecar, name, text)
}

func vsOf(t testing.TB, name, host, to, more string) model.Record {
	return rec(t, model.KindVirtualService, name, "hosts: ['"+host+"']\nhttp: [{route: [{destination: {host: "+to+"}}]}]\n"+more)
}

// Of several services of one host the first in this order defines it: the proxy's own namespace, a Kubernetes Service,
// the oldest.
func TestServiceForHost(t *testing.T) {
	ip := func(address string) string { return "addresses: [" + address + "]\nresolution: RESOLUTION_DNS\n" }
	for name, c := range map[string]struct {
		records []model.Record
		want    string // the address that the virtual host has as a domain
	}{
		"own namespace":   {[]model.Record{entryOf(t, "aaa/x@1", "x.org", ip("1.1.1.1")), entryOf(t, "shop/x@9", "x.org", ip("2.2.2.2"))}, "2.2.2.2"},
		"oldest":          {[]model.Record{entryOf(t, "aaa/x@5", "x.org", ip("1.1.1.1")), entryOf(t, "bbb/x@4", "x.org", ip("2.2.2.2"))}, "2.2.2.2"},
		"by name":         {[]model.Record{entryOf(t, "aaa/x@5", "x.org", ip("1.1.1.1")), entryOf(t, "bbb/x@5", "x.org", ip("2.2.2.2"))}, "1.1.1.1"},
		"not exported":    {[]model.Record{entryOf(t, "aaa/x@1", "x.org", ip("1.1.1.1")+"exportTo: [aaa]\n"), entryOf(t, "bbb/x@4", "x.org", ip("2.2.2.2"))}, "2.2.2.2"},
		"Kubernetes wins": {[]model.Record{entryOf(t, "aaa/x@1", "web.bbb.svc.cluster.local", ip("1.1.1.1")), svc(t, "bbb/web@9", "2.2.2.2", "http:80:HTTP")}, "2.2.2.2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := domains(routesOfSet(t, planFor(snapshot(c.records...), node("shop", "a")), "80"))
			if !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("virtual hosts:\n%s\nwant one with %s", got, c.want)
			}
		})
	}
}

// The VirtualService of a host is the one with the most specific host, then the oldest; only exported ones for the mesh
// count.
func TestVirtualServiceForHost(t *testing.T) {
	target := func(t *testing.T, records ...model.Record) string {
		s := snapshot(append(records, svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), entryOf(t, "shop/one", "one.org", ""), entryOf(t, "shop/two", "two.org", ""))...)
		for _, vh := range routesOfSet(t, planFor(s, node("other", "a")), "80").VirtualHosts {
			if vh.Name == web+":80" {
				return vh.Routes[0].GetRoute().GetCluster()
			}
		}
		return ""
	}
	connecting := func(name string) model.Record {
		return rec(t, model.KindVirtualService, name, "hosts: ["+web+"]\ntls: [{match: [{sniHosts: ["+web+"]}], route: [{destination: {host: one.org}}]}]")
	}
	for name, c := range map[string]struct {
		records []model.Record
		want    string
	}{
		"none":                {nil, "outbound|80||" + web},
		"oldest":              {[]model.Record{vsOf(t, "shop/a@5", web, "one.org", ""), vsOf(t, "shop/b@4", web, "two.org", "")}, "outbound|80||two.org"},
		"exact over wildcard": {[]model.Record{vsOf(t, "shop/a@5", web, "one.org", ""), vsOf(t, "shop/b@4", "*.shop.svc.cluster.local", "two.org", "")}, "outbound|80||one.org"},
		"longest wildcard":    {[]model.Record{vsOf(t, "shop/a@5", "*.shop.svc.cluster.local", "one.org", ""), vsOf(t, "shop/b@4", "*.cluster.local", "two.org", "")}, "outbound|80||one.org"},
		"rules of others":     {[]model.Record{connecting("shop/a@4"), vsOf(t, "shop/b@5", web, "two.org", "")}, "outbound|80||two.org"},
		"not by a wildcard":   {[]model.Record{connecting("shop/a@5"), vsOf(t, "shop/b@4", "*.shop.svc.cluster.local", "two.org", "")}, "outbound|80||" + web},
		"private":             {[]model.Record{vsOf(t, "shop/a", web, "one.org", "exportTo: ['.']")}, "outbound|80||" + web},
		"for gateways":        {[]model.Record{vsOf(t, "shop/a", web, "one.org", "gateways: [gw]")}, "outbound|80||" + web},
		"for another port":    {[]model.Record{rec(t, model.KindVirtualService, "shop/a", "hosts: ["+web+"]\nhttp: [{match: [{port: 81}], route: [{destination: {host: one.org}}]}]")}, "outbound|80||" + web},
		"for others":          {[]model.Record{rec(t, model.KindVirtualService, "shop/a", "hosts: ["+web+"]\nhttp: [{match: [{sourceLabels: {a: b}}, {sourceNamespace: x}], route: [{destination: {host: one.org}}]}]")}, "outbound|80||" + web},
		"nowhere":             {[]model.Record{vsOf(t, "shop/a", web, "three.org", "")}, "outbound|80||three.org"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := target(t, c.records...); got != c.want {
				t.Errorf("requests go to %s, want %s", got, c.want)
			}
		})
	}
}

// DestinationRules are searched in the client's namespace, in the service's and in the root namespace; subsets of
// several rules of one host are merged.
func TestRulesForHost(t *testing.T) {
	rule := func(name, host, subset, more string) model.Record {
		return rec(t, model.KindDestinationRule, name, "host: '"+host+"'\nsubsets: [{name: "+subset+", labels: {version: v1}}]\n"+more)
	}
	for name, c := range map[string]struct {
		records []model.Record
		want    string
	}{
		"client's":  {[]model.Record{rule("client/a", web, "c", ""), rule("shop/a", web, "s", ""), rule("istio-system/a", web, "r", "")}, "80|c|" + web},
		"service's": {[]model.Record{rule("shop/a", web, "s", ""), rule("istio-system/a", web, "r", "")}, "80|s|" + web},
		"root's":    {[]model.Record{rule("else/a", web, "e", ""), rule("istio-system/a", "*.cluster.local", "r", "")}, "80|r|" + web},
		"private":   {[]model.Record{rule("shop/a", web, "s", "exportTo: ['.']"), rule("istio-system/a", web, "r", "")}, "80|r|" + web},
		"specific":  {[]model.Record{rule("shop/a@1", "*.shop.svc.cluster.local", "w", ""), rule("shop/b@2", web, "s", "")}, "80|s|" + web},
		"merged":    {[]model.Record{rule("shop/a@2", web, "yy", ""), rule("shop/b@1", web, "xx", "")}, "80|xx|" + web + " 80|yy|" + web},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(append(c.records, svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"))...)
			if got := clusterNames(planFor(s, node("client", "a"))); got != c.want+" 80||"+web {
				t.Errorf("clusters %s, want %s", got, c.want)
			}
		})
	}
}

// Names are unique in a route configuration: names of Kubernetes Services precede those of ServiceEntries, whatever the
// names of the records.
func TestDomainsAreUnique(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), svc(t, "shop/zoo", "10.96.0.1", "http:80:HTTP"),
		entryOf(t, "shop/short", "web", ""), entryOf(t, "shop/dotted", "zoo.shop", ""), entryOf(t, "shop/zzz", "zoo", ""))
	p := New(Settings{Snapshot: s})
	got := domains(routesOfSet(t, p.Join(node("shop", "a")).Set(), "80"))
	want := `web:80: web.
web.shop.svc.cluster.local:80: web.shop.svc.cluster.local web web.shop web.shop.svc web.shop.svc.cluster.local. 10.96.0.1
zoo:80: zoo.
zoo.shop:80: zoo.shop.
zoo.shop.svc.cluster.local:80: zoo.shop.svc.cluster.local zoo zoo.shop zoo.shop.svc zoo.shop.svc.cluster.local.
allow_any: *`
	if got != want {
		t.Errorf("virtual hosts:\n%s\nwant\n%s", got, want)
	}
	if found := p.Problems(); len(found) != 4 || found[0].Key.Name != "zoo" || !strings.Contains(found[0].Message, "name 10.96.0.1 at port 80") {
		t.Errorf("problems %v, want one for each name that was lost", found)
	}
}

// A host's domains include the absolute DNS name, which ends with a dot; also for wildcards and for the pods of a
// headless service, but not for addresses. If an EnvoyFilter's virtual host already contains it, it stays there.
func TestAbsoluteNames(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(
		entryOf(t, "shop/address", "10.1.1.1", ""), entryOf(t, "shop/wide", "*.wide.org", ""), svc(t, "shop/taken", "10.96.0.1", "http:80:HTTP"),
		rec(t, model.KindService, "data/db", "hosts: [db.data.svc.cluster.local]\nexportTo: ['*']\nheadless: true\nports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]"),
		rec(t, model.KindEnvoyFilter, "shop/f", `
configPatches:
- {applyTo: VIRTUAL_HOST, match: {}, patch: {operation: ADD, value: {name: mine, domains: [taken.shop.svc.cluster.local.]}}}
`))})
	got := domains(routesOfSet(t, p.Join(node("shop", "a")).Set(), "80"))
	want := `*.wide.org:80: *.wide.org *.wide.org.
10.1.1.1:80: 10.1.1.1
db.data.svc.cluster.local:80: db.data.svc.cluster.local db.data db.data.svc db.data.svc.cluster.local. *.db.data.svc.cluster.local *.db.data *.db.data.svc *.db.data.svc.cluster.local.
taken.shop.svc.cluster.local:80: taken.shop.svc.cluster.local taken taken.shop taken.shop.svc 10.96.0.1
mine: taken.shop.svc.cluster.local.
allow_any: *`
	if got != want {
		t.Errorf("virtual hosts:\n%s\nwant\n%s", got, want)
	}
}

// Of several services with one port at 0.0.0.0 one TCP or HTTP service is served, HTTP before TCP, and each other one
// has a problem. TLS services, and TCP services with an address range, have filter chains beside it.
func TestListenerConflicts(t *testing.T) {
	tcp := func(name, host, protocol, more string) model.Record {
		return rec(t, model.KindServiceEntry, name, "hosts: ["+host+"]\nexportTo: ['*']\nresolution: RESOLUTION_NONE\nports: [{number: 443, name: x, protocol: PROTOCOL_"+protocol+"}]\n"+more)
	}
	for name, c := range map[string]struct {
		records  []model.Record
		chains   int
		fallback bool
		problems int
	}{
		"two of TLS":      {[]model.Record{tcp("a/a@1", "a.org", "TLS", ""), tcp("a/b@2", "b.org", "TLS", "")}, 2, true, 0},
		"two of TCP":      {[]model.Record{tcp("a/a@1", "a.org", "TCP", ""), tcp("a/b@2", "b.org", "TCP", "")}, 1, false, 1},
		"HTTP and TCP":    {[]model.Record{tcp("a/a@1", "a.org", "TCP", ""), tcp("a/b@2", "b.org", "HTTP", "")}, 1, true, 1},
		"HTTP and TLS":    {[]model.Record{tcp("a/a@1", "a.org", "TLS", ""), tcp("a/b@2", "b.org", "HTTP", "")}, 2, true, 0},
		"a range and TCP": {[]model.Record{tcp("a/a@1", "a.org", "TCP", "addresses: [10.0.0.0/8]"), tcp("a/b@2", "b.org", "TCP", "")}, 2, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Settings{Snapshot: snapshot(c.records...)})
			set := p.Join(node("shop", "a")).Set()
			l := listenerOf(t, set, "0.0.0.0_443")
			chains := len(l.FilterChains)
			if l.DefaultFilterChain != nil {
				chains++
			}
			fallback := l.DefaultFilterChain.GetName() == xds.PassthroughChain
			if fallback {
				chains--
			}
			if chains != c.chains || fallback != c.fallback {
				t.Errorf("%d chains (fallback %v), want %d (%v): %v", chains, fallback, c.chains, c.fallback, l)
			}
			if found := p.Problems(); len(found) != c.problems {
				t.Errorf("problems %v, want %d", found, c.problems)
			}
		})
	}
}

// For a workload without redirection its Sidecar binds each listener to an address of its own.
func TestSidecarWithoutRedirection(t *testing.T) {
	s := snapshot(
		svc(t, "shop/web", "10.96.0.1", "http:9080:HTTP"), svc(t, "shop/reviews", "10.96.0.2", "http:9080:HTTP"), svc(t, "shop/db", "10.96.0.3", "tcp:9090:TCP"),
		sidecarOf(t, "shop/web", `
workloadSelector: {labels: {app: web}}
ingress: [{port: {number: 19080, protocol: HTTP, name: in}, bind: 127.0.1.1, captureMode: NONE, defaultEndpoint: '127.0.0.1:7001'}]
egress:
- {port: {number: 9080, protocol: HTTP, name: out}, bind: 127.0.1.1, captureMode: NONE, hosts: ['./*']}
- {port: {number: 9090, protocol: TCP, name: db}, bind: 127.0.1.1, captureMode: NONE, hosts: ['./db.shop.svc.cluster.local']}
`))
	set := planFor(s, node("shop", "web-1", "app=web"))
	if got := names(set, xds.Listener); got != "127.0.1.1_19080 127.0.1.1_9080 127.0.1.1_9090" {
		t.Errorf("listeners: %s", got)
	}
	if got := names(set, xds.Route); got != "9080" {
		t.Errorf("routes: %s", got)
	}
	if l := listenerOf(t, set, "127.0.1.1_9080"); l.BindToPort != nil && !l.BindToPort.Value {
		t.Error("127.0.1.1_9080 is not bound")
	}
	if got := clusterNames(set); got != "9080||reviews.shop.svc.cluster.local 9080||web.shop.svc.cluster.local 9090||db.shop.svc.cluster.local" {
		t.Errorf("clusters: %s", got)
	}
	in := clusterOf(t, set, "inbound|19080||").GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
	if in.GetAddress() != "127.0.0.1" || in.GetPortValue() != 7001 {
		t.Errorf("inbound goes to %v", in)
	}
}

// Inbound ports: target ports by number, named target ports by the endpoints, and passthrough for the rest.
func TestInboundPorts(t *testing.T) {
	s := snapshot(
		rec(t, model.KindService, "shop/web", "hosts: [web.shop.svc.cluster.local]\nexportTo: ['*']\nselector: {app: web}\nports: [{name: http, number: 80, protocol: PROTOCOL_HTTP, targetName: main},"+
			" {name: grpc, number: 90, protocol: PROTOCOL_GRPC, targetNumber: 9000}, {name: dns, number: 53, protocol: PROTOCOL_UDP, targetNumber: 53}]"),
		eps(t, "shop/web-1", "{name: http, number: 8080}, {name: grpc, number: 9000}", "10.1.0.1"), svc(t, "shop/else", "10.96.0.9", "http:80:HTTP"))
	p := New(Settings{Snapshot: s})
	h := p.Join(node("shop", "web-1", "app=web"))
	inbound := func() string {
		var out []string
		for _, r := range h.Set().Types[xds.Cluster].Sorted() {
			if strings.HasPrefix(r.Name, "inbound|") {
				out = append(out, r.Name)
			}
		}
		return strings.Join(out, " ")
	}
	if got := inbound(); got != "inbound|8080|| inbound|9000||" {
		t.Errorf("inbound clusters: %s", got)
	}
	p.Apply(s.Apply(2, []model.Record{eps(t, "shop/web-1", "{name: http, number: 8081}, {name: grpc, number: 9000}", "10.1.0.1")}, nil))
	if got := inbound(); got != "inbound|8081|| inbound|9000||" {
		t.Errorf("inbound clusters after the named port moved: %s", got)
	}
	closed := rec(t, model.KindAuthorizationPolicy, "shop/p", "{closed: true, selector: {app: web}}")
	before := h.Set().Types[xds.Listener].Get(xds.VirtualInbound)
	p.Apply(p.Snapshot().Apply(3, []model.Record{closed}, nil))
	if after := h.Set().Types[xds.Listener].Get(xds.VirtualInbound); after == before || !h.View().Workload.Closed {
		t.Error("a policy that could not be understood does not close the workload that it selects")
	}
}

// A rule that reads labels splits a route configuration, and not the scope; values that no rule names split nothing.
func TestVariant(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), svc(t, "shop/api", "10.96.0.2", "http:8080:HTTP"), entryOf(t, "shop/canary", "canary.org", ""),
		rec(t, model.KindVirtualService, "shop/v", "hosts: ["+web+"]\nhttp: [{match: [{sourceLabels: {tier: test}}], route: [{destination: {host: canary.org}}]}, {route: [{destination: {host: "+web+"}}]}]"))
	p := New(Settings{Snapshot: s})
	test, prod, plain := p.Join(node("shop", "a", "tier=test", "pod=1")), p.Join(node("shop", "b", "tier=prod", "pod=2")), p.Join(node("shop", "c", "pod=3"))
	first := func(h *Handle) string {
		return routesOfSet(t, h.Set(), "80").VirtualHosts[1].Routes[0].GetRoute().GetCluster()
	}
	if a, b, c := first(test), first(prod), first(plain); a != "outbound|80||canary.org" || b != "outbound|80||"+web || c != b {
		t.Errorf("first routes: %s, %s, %s", a, b, c)
	}
	if st := p.Stats(); st.Scopes != 1 || st.Variants != 1 || st.Views != 2 {
		t.Errorf("%+v, want one scope, one variant and two views", st)
	}
	if a, b := test.Set().Types[xds.Route].Get("8080"), plain.Set().Types[xds.Route].Get("8080"); a != b {
		t.Error("a route configuration that reads no labels is not shared")
	}
}

// A host that is an alias of another host (a Service of type ExternalName) has that host's rules, including rules for
// selected proxies.
func TestVariantOfAlias(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), svc(t, "shop/api", "10.96.0.2", "http:80:HTTP"),
		rec(t, model.KindService, "shop/other", "hosts: [other.shop.svc.cluster.local]\nexportTo: ['*']\naliasFor: api.shop.svc.cluster.local\nports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]"),
		rec(t, model.KindVirtualService, "shop/v", "hosts: ["+web+"]\nhttp: [{route: [{destination: {host: other.shop.svc.cluster.local}}]}]"),
		rec(t, model.KindDestinationRule, "shop/r", "host: api.shop.svc.cluster.local\nworkloadSelector: {matchLabels: {tier: test}}\ntrafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}"))})
	for tier, want := range map[string]int{"test": 1, "prod": 0} {
		h := p.Join(node("shop", tier, "tier="+tier))
		for _, vh := range routesOfSet(t, h.Set(), "80").VirtualHosts {
			if to := vh.Routes[0].GetRoute(); vh.Domains[0] == web && (to.GetCluster() != "outbound|80||api.shop.svc.cluster.local" || len(to.HashPolicy) != want) {
				t.Errorf("%s: to %s by %d hash policies, want %d", tier, to.GetCluster(), len(to.HashPolicy), want)
			}
		}
	}
}

// A TCP route that reads labels may change for some proxies only: proxies without these labels keep the same listener.
func TestConnectionsOfVariantsAlone(t *testing.T) {
	connecting := func(tier string) model.Record {
		return rec(t, model.KindVirtualService, "shop/v", "hosts: ["+web+"]\ntcp: [{match: [{sourceLabels: {tier: "+tier+"}}], route: [{destination: {host: canary.org}}]}, "+
			"{match: [{sourceLabels: {tier: test}}, {sourceLabels: {tier: prod}}], route: [{destination: {host: "+web+"}}]}]")
	}
	p := New(Settings{Snapshot: snapshot(svc(t, "shop/web", "10.96.0.1", "raw:9000:TCP"), entryOf(t, "shop/canary", "canary.org", ""), connecting("test"))})
	test, prod, plain := p.Join(node("shop", "a", "tier=test")), p.Join(node("shop", "b", "tier=prod")), p.Join(node("shop", "c"))
	p.Apply(p.Snapshot().Apply(2, []model.Record{connecting("prod")}, nil))
	canary := func(h *Handle) bool {
		return strings.Contains(listenerOf(t, h.Set(), "10.96.0.1_9000").String(), "canary.org")
	}
	if canary(test) || !canary(prod) {
		t.Errorf("selected before: %v, selected now: %v, want the latter alone to be sent to canary.org", canary(test), canary(prod))
	}
	for _, h := range []*Handle{test, prod, plain} {
		if bad := p.Check(h); len(bad) > 0 {
			t.Errorf("%s: %v", h.Node.Name, bad)
		}
	}
}

// When the last proxy of a view leaves, its layers are removed.
func TestLeave(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"))})
	a, b, c := p.Join(node("shop", "a", "app=web")), p.Join(node("shop", "b", "app=web")), p.Join(node("else", "c"))
	if st := p.Stats(); st.Views != 2 || st.Scopes != 2 || st.Workloads != 2 || st.Proxies != 3 {
		t.Errorf("%+v, want 2 views of 3 proxies", st)
	}
	// A Sidecar moves both proxies to another scope, and its deletion moves them back.
	s := p.Snapshot().Apply(2, []model.Record{sidecarOf(t, "shop/x", "egress: [{hosts: ['./*']}]")}, nil)
	if moved := p.Apply(s); len(moved) != 2 || a.View().Scope.Sidecar.Name != "x" {
		t.Errorf("%d moved, want 2", len(moved))
	}
	p.Apply(mirror.Change{Old: s.New, New: s.Old, Edits: mirror.Diff(s.New, s.Old).Edits})
	for _, h := range []*Handle{a, b, c, a} {
		p.Leave(h)
	}
	if st := p.Stats(); st != (Stats{}) {
		t.Errorf("%+v is left", st)
	}
}

// The ports to which connections are redirected are reserved for the proxy.
func TestReservedPorts(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(svc(t, "shop/web", "10.96.0.1", "a:15001:HTTP", "b:15006:TCP", "c:15007:HTTP"))})
	if got := names(p.Join(node("shop", "a")).Set(), xds.Listener); got != "0.0.0.0_15007 10.96.0.1_15006 virtualInbound virtualOutbound" {
		t.Errorf("listeners: %s", got)
	}
	if len(p.Problems()) != 1 {
		t.Errorf("problems: %v", p.Problems())
	}
}
