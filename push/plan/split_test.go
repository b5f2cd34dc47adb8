//go:build !race

package plan

import (
	"fmt"
	"maps"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// splitters are configurations of a mesh of tenants (each a namespace with five applications), by name: the records for
// one tenant, and for the mesh.
var splitters = map[string]struct {
	tenant, mesh func(t testing.TB, ns string) []model.Record
}{
	"locality": {mesh: func(t testing.TB, _ string) []model.Record {
		return []model.Record{rec(t, model.KindDestinationRule, "t0/zones", `host: web.t0.svc.cluster.local
trafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}, loadBalancer: {localityLbSetting: {distribute: [{from: region/zone0/*, to: {region/zone0/*: 80, region/zone1/*: 20}}]}}}`)}
	}},
	"sidecars": {tenant: func(t testing.TB, ns string) []model.Record {
		return []model.Record{rec(t, model.KindSidecar, ns+"/default", "egress: [{hosts: ['./*', 't0/*']}]")}
	}},
	"sidecar of a workload": {tenant: func(t testing.TB, ns string) []model.Record {
		return []model.Record{rec(t, model.KindSidecar, ns+"/a0", "workloadSelector: {labels: {app: a0}}\negress: [{hosts: ['./*']}]")}
	}},
	"policies": {tenant: func(t testing.TB, ns string) (all []model.Record) {
		for i := range 5 {
			all = append(all, rec(t, model.KindAuthorizationPolicy, fmt.Sprintf("%s/a%d", ns, i), fmt.Sprintf("selector: {app: a%d}", i)))
		}
		return all
	}},
	"telemetry": {tenant: func(t testing.TB, ns string) []model.Record {
		return []model.Record{rec(t, model.KindTelemetry, ns+"/a0", "selector: {matchLabels: {app: a0}}\naccessLogging: [{providers: [{name: envoy}]}]")}
	}},
}

// splitBy plans two proxies of each of the five applications of each tenant in each of three zones, with some of the
// splitters configured.
func splitBy(t testing.TB, tenants int, by ...string) Stats {
	all := []model.Record{}
	for i := range tenants {
		ns := fmt.Sprintf("t%d", i)
		all = append(all, svc(t, ns+"/web", fmt.Sprintf("10.96.%d.1", i), "http:80:HTTP"))
		for _, name := range by {
			if of := splitters[name].tenant; of != nil {
				all = append(all, of(t, ns)...)
			}
		}
	}
	for _, name := range by {
		if of := splitters[name].mesh; of != nil {
			all = append(all, of(t, "")...)
		}
	}
	p := New(Settings{Snapshot: mirror.Empty().Apply(1, all, nil).New})
	for i := range tenants * 30 {
		n := node(fmt.Sprintf("t%d", i%tenants), fmt.Sprintf("p%d", i), fmt.Sprintf("app=a%d", i/tenants%5))
		n.Locality = fmt.Sprintf("region/zone%d", i/tenants/5%3)
		p.Join(n)
	}
	return p.Stats()
}

// splits are the meshes of the test and of the benchmark: each configuration alone, and all together.
var splits = [][]string{{}, {"locality"}, {"sidecars"}, {"sidecar of a workload"}, {"policies"}, {"telemetry"}, {"locality", "sidecars", "sidecar of a workload", "policies", "telemetry"}}

// Views are split only by properties that the configuration distinguishes proxies by: of thirty proxies of each of two
// tenants.
func TestViewsAreSplitByWhatDistinguishesProxies(t *testing.T) {
	want := []Stats{
		{Scopes: 2, Workloads: 2, Views: 2, Proxies: 60},                 // one for each tenant
		{Scopes: 2, Variants: 6, Workloads: 2, Views: 6, Proxies: 60},    // three zones of each tenant
		{Scopes: 2, Workloads: 2, Views: 2, Proxies: 60},                 // one Sidecar for all of a tenant
		{Scopes: 4, Workloads: 4, Views: 4, Proxies: 60},                 // one application has its own Sidecar
		{Scopes: 2, Workloads: 10, Views: 10, Proxies: 60},               // in the inbound sides only
		{Scopes: 2, Variants: 2, Workloads: 4, Views: 4, Proxies: 60},    // one application, in the listeners only
		{Scopes: 4, Variants: 12, Workloads: 10, Views: 30, Proxies: 60}, // by applications and zones
	}
	for i, by := range splits {
		if got := splitBy(t, 2, by...); got != want[i] {
			t.Errorf("%v: %+v, want %+v", by, got, want[i])
		}
	}
}

// Rules that read the locality exist for 3 of 500 services, and a rule for selected workloads for 3 others. Resources
// of the other 494 are the same values for proxies of other places and labels, and are planned once. An edit of one of
// the six changes only that one.
func TestOnlyEntriesThatReadInputsSplit(t *testing.T) {
	const services = 500
	p, shared, handles := bigPlanner(t, services, 1)
	host := func(i int) string { return fmt.Sprintf("s%d.ns%d.svc.cluster.local", i, i/10) }
	rule := func(i int, text string) model.Record {
		return rec(t, model.KindDestinationRule, fmt.Sprintf("ns0/rule%d", i), "host: "+host(i)+"\n"+text)
	}
	locality := "trafficPolicy: {outlierDetection: {consecutive5xxErrors: %d}}"
	selector := "workloadSelector: {matchLabels: {tier: x}}\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}"
	rules := []model.Record{}
	for i := range 3 {
		rules = append(rules, rule(10+i, fmt.Sprintf(locality, 5)), rule(20+i, fmt.Sprintf(selector, 5)),
			rec(t, model.KindEndpoints, fmt.Sprintf("ns1/s%d-1", 10+i), "hosts: ["+host(10+i)+"]\nports: [{name: http, number: 8080}, {name: raw, number: 9000}]\n"+
				"endpoints: [{address: 10.9.0.1, locality: r1/z1, namespace: ns1, health: HEALTH_READY}, {address: 10.9.0.2, locality: r2/z1, namespace: ns1, health: HEALTH_READY}]"))
	}
	p.Apply(p.Snapshot().Apply(2, rules, nil))
	join := func(name, locality string, labels ...string) *Handle {
		n := node("ns0", name, labels...)
		n.Locality = locality
		return p.Join(n)
	}
	plain, near := handles[0], (*Handle)(nil)
	built := measure(shared, func() { near = join("near", "r1/z1") })
	// An assignment for each of the two ports of three services; clusters, listeners and routes do not read the locality.
	if want := (work{endpoints: 6}); built != want || len(own(near)) != 6 {
		t.Errorf("a proxy of another place: built %+v, want %+v; its own are %q", built, want, own(near))
	}
	var both *Handle
	built = measure(shared, func() { both = join("both", "r2/z1", "tier=x") })
	// The assignments of another place, and clusters for two ports of three selected services. The listeners of their TCP
	// ports are built for the rule's policy and are equal; virtual hosts read only the hash policy of a rule, which is
	// empty.
	if want := (work{clusters: 6, endpoints: 6, listeners: 3}); built != want || len(own(both)) != 6+6 {
		t.Errorf("a selected proxy of another place: built %+v, want %+v; its own are %q", built, want, own(both))
	}
	for _, h := range []*Handle{near, both} {
		for _, kind := range []xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route} {
			if h.Set().Types[kind][manifest.Scope] != plain.Set().Types[kind][manifest.Scope] {
				t.Errorf("%s: %ss are not those of the scope", h.Node.Name, kind.Noun())
			}
		}
		same := 0
		for i := range services {
			name := "outbound|80||" + host(i)
			if h.Set().Types[xds.Cluster].Get(name) == plain.Set().Types[xds.Cluster].Get(name) && h.Set().Types[xds.Endpoint].Get(name) == plain.Set().Types[xds.Endpoint].Get(name) {
				same++
			}
		}
		if want := map[*Handle]int{near: 497, both: 494}[h]; same != want {
			t.Errorf("%s: %d services are the very same, want %d", h.Node.Name, same, want)
		}
		if bad := p.Check(h); len(bad) > 0 {
			t.Errorf("%s: %v", h.Node.Name, bad)
		}
	}
	for name, c := range map[string]struct {
		edit  model.Record
		moved int
		want  work
	}{
		"a rule for selected workloads": {rule(20, fmt.Sprintf(selector, 6)), 1, work{clusters: 2, listeners: 1}},
		"a rule that reads the place":   {rule(10, fmt.Sprintf(locality, 6)), 3, work{clusters: 2, listeners: 1}},
	} {
		var moved []Moved
		built := measure(shared, func() { moved = p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{c.edit}, nil)) })
		if built != c.want || len(moved) != c.moved {
			t.Errorf("%s: built %+v and moved %d, want %+v and %d", name, built, len(moved), c.want, c.moved)
		}
	}
}

// In each type only the entries that read a distinguishing input split; all others are those of the scope with 500
// services.
func TestEachTypeSplitsAlone(t *testing.T) {
	const services, host, selects = 500, "s20.ns2.svc.cluster.local", "workloadSelector: {matchLabels: {tier: x}}"
	rule := func(text string) model.Record {
		return rec(t, model.KindDestinationRule, "ns0/r", "host: "+host+"\n"+text)
	}
	route := func(text string) model.Record {
		return rec(t, model.KindVirtualService, "ns2/s20", "hosts: ["+host+"]\n"+text+": [{match: [{sourceLabels: {tier: x}}], route: [{destination: {host: s21.ns2.svc.cluster.local}}]}, {route: [{destination: {host: "+host+"}}]}]")
	}
	for name, c := range map[string]struct {
		record model.Record
		built  work
		own    map[xds.Type]int
	}{
		"assignments": {rule("trafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}}"), work{endpoints: 2}, map[xds.Type]int{xds.Endpoint: 2}},
		// The listener of the TCP port is built for the rule's policy and is equal.
		"clusters":        {rule(selects + "\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}"), work{clusters: 2, listeners: 1}, map[xds.Type]int{xds.Cluster: 2}},
		"a virtual host":  {route("http"), work{hosts: 1, routes: 1}, map[xds.Type]int{xds.Route: 1}},
		"one listener":    {route("tcp"), work{listeners: 1}, map[xds.Type]int{xds.Listener: 1}},
		"every listener":  {rec(t, model.KindTelemetry, "ns0/t", "selector: {matchLabels: {tier: x}}\naccessLogging: [{providers: [{name: envoy}], filter: {expression: response.code >= 400}}]"), work{listeners: services + 3}, map[xds.Type]int{xds.Listener: services + 2}},
		"nothing is read": {rule("trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}"), work{}, map[xds.Type]int{}},
	} {
		p, shared, handles := bigPlanner(t, services, 1)
		p.Apply(p.Snapshot().Apply(2, []model.Record{c.record, rec(t, model.KindEndpoints, "ns2/s20-1", "hosts: ["+host+"]\nports: [{name: http, number: 8080}, {name: raw, number: 9000}]\n"+
			"endpoints: [{address: 10.9.0.1, locality: r1/z1, namespace: ns2, health: HEALTH_READY}, {address: 10.9.0.2, locality: r2/z1, namespace: ns2, health: HEALTH_READY}]")}, nil))
		n := node("ns0", "other", "tier=x")
		n.Locality = "r1/z1"
		var h *Handle
		if built := measure(shared, func() { h = p.Join(n) }); built != c.built {
			t.Errorf("%s: built %+v, want %+v", name, built, c.built)
		}
		own := map[xds.Type]int{}
		for kind := range xds.NumTypes {
			stack := h.Set().Types[kind]
			if stack[manifest.Scope] != handles[0].Set().Types[kind][manifest.Scope] {
				t.Errorf("%s: %ss are not those of the scope", name, kind.Noun())
			}
			for range stack[manifest.Variant].All() {
				own[kind]++
			}
		}
		if !maps.Equal(own, c.own) {
			t.Errorf("%s: of its own are %v, want %v", name, own, c.own)
		}
	}
}

// BenchmarkViews prints the numbers of views of 1,200 proxies of 40 tenants in three zones for each configuration that
// splits them.
func BenchmarkViews(b *testing.B) {
	for _, by := range splits {
		b.Run(fmt.Sprintf("%v", by), func(b *testing.B) {
			var st Stats
			for range b.N {
				st = splitBy(b, 40, by...)
			}
			for unit, n := range map[string]int{"proxies": st.Proxies, "views": st.Views, "scopes": st.Scopes, "variants": st.Variants, "workloads": st.Workloads} {
				b.ReportMetric(float64(n), unit)
			}
			b.ReportMetric(float64(st.Views)/float64(st.Proxies), "views/proxy")
		})
	}
}
