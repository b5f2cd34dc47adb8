package plan

import (
	"fmt"
	"testing"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// splitters are what may be configured in a mesh of tenants, each a namespace with five applications: records of one tenant, and of the mesh.
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

// splitBy plans two proxies of each of five applications of each tenant in each of three zones, where some of the splitters are configured.
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

// splits are the meshes of the test and the benchmark: what is configured, one by one and all together.
var splits = [][]string{{}, {"locality"}, {"sidecars"}, {"sidecar of a workload"}, {"policies"}, {"telemetry"}, {"locality", "sidecars", "sidecar of a workload", "policies", "telemetry"}}

// Views are split by what is configured to tell proxies apart, and by nothing else: thirty proxies of each of two tenants.
func TestViewsAreSplitByWhatTellsProxiesApart(t *testing.T) {
	want := []Stats{
		{Scopes: 2, Workloads: 2, Views: 2, Proxies: 60},                 // the tenants
		{Scopes: 2, Variants: 6, Workloads: 2, Views: 6, Proxies: 60},    // three zones of each
		{Scopes: 2, Workloads: 2, Views: 2, Proxies: 60},                 // one Sidecar for all of a tenant
		{Scopes: 4, Workloads: 4, Views: 4, Proxies: 60},                 // one application has its own
		{Scopes: 2, Workloads: 10, Views: 10, Proxies: 60},               // the inbound sides alone
		{Scopes: 2, Variants: 2, Workloads: 4, Views: 4, Proxies: 60},    // one application, listeners alone
		{Scopes: 4, Variants: 12, Workloads: 10, Views: 30, Proxies: 60}, // applications and zones
	}
	for i, by := range splits {
		if got := splitBy(t, 2, by...); got != want[i] {
			t.Errorf("%v: %+v, want %+v", by, got, want[i])
		}
	}
}

// BenchmarkViews prints what splits the views of 1,200 proxies of 40 tenants in three zones.
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
