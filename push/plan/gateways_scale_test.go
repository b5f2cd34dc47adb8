//go:build !race

package plan

import (
	"fmt"
	"runtime"
	"testing"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// gatewayRoutes are the numbers of routes between which the work of an edit has to be equal.
var gatewayRoutes = []int{500, 5000}

// tenantRoute returns a route of one host with two rules, operations on headers, and a destination that is missing.
func tenantRoute(t testing.TB, i, edition int) model.Record {
	return rec(t, model.KindVirtualService, fmt.Sprintf("ns%d/r%d@1", i/10%50, i), fmt.Sprintf(`{hosts: [r%d.test], gateways: [edge/front], http: [
		{match: [{uri: {prefix: /api}}], headers: {request: {set: {x-route: r%d}}, response: {add: {x-edition: "%d"}}},
			route: [{destination: {host: s%d.ns%d.svc.cluster.local, port: {number: 80}}}]},
		{headers: {request: {remove: [x-internal]}}, route: [{destination: {host: missing.ns%d.svc.cluster.local, port: {number: 80}}}]}]}`,
		i, i, edition, i/10, i/10%50, i/10%50))
}

func tenantService(t testing.TB, i int) model.Record {
	return svc(t, fmt.Sprintf("ns%d/s%d", i%50, i), fmt.Sprintf("10.96.%d.%d", i/250, i%250+1), "http:80:HTTP")
}

func tenantEndpoints(t testing.TB, i, ready int) model.Record {
	var addresses []string
	for k := range ready {
		addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", 1+i/250, i%250, k+1))
	}
	return eps(t, fmt.Sprintf("ns%d/s%d-1", i%50, i), "{name: http, number: 8080}", addresses...)
}

// routedGateway plans for one gateway with n routes of 50 namespaces; ten of them lead to each service.
func routedGateway(t testing.TB, n int) (*Planner, *pool.Pool, *Handle) {
	records := []model.Record{rec(t, model.KindGateway, "edge/front",
		"{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")}
	for i := range n / 10 {
		records = append(records, tenantService(t, i), tenantEndpoints(t, i, 2))
	}
	for i := range n {
		records = append(records, tenantRoute(t, i, 0))
	}
	shared := &pool.Pool{}
	p := New(Settings{Pool: shared, Snapshot: snapshot(records...)})
	return p, shared, p.Join(routerOf("edge", "gw"))
}

// gatewayEdits are kinds of edits of one tenant, each of which differs from round to round.
var gatewayEdits = []struct {
	name string
	edit func(t testing.TB, round int) model.Record
	want work
}{
	{"a route is edited", func(t testing.TB, round int) model.Record { return tenantRoute(t, 123, round) }, work{routes: 1, hosts: 1}},
	{"a route is added", func(t testing.TB, round int) model.Record { return tenantRoute(t, 10_000+round, 0) }, work{routes: 1, hosts: 1}},
	{"endpoints change", func(t testing.TB, round int) model.Record { return tenantEndpoints(t, 7, 2+round%50) }, work{endpoints: 1}},
	{"a DestinationRule is edited", func(t testing.TB, round int) model.Record {
		return rec(t, model.KindDestinationRule, "ns7/s7", fmt.Sprintf(
			"{host: s7.ns7.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}}", round+1))
	}, work{clusters: 1}},
}

// The work of one edit at a gateway is the same with 500 and with 5,000 routes: so much is encoded, and the
// allocations, which would show copied lists, grow by less than 10 bytes for each further route.
func TestGatewayEditsAreFlat(t *testing.T) {
	const rounds = 40
	for _, c := range gatewayEdits {
		allocated := map[int]float64{}
		for _, n := range gatewayRoutes {
			p, shared, _ := routedGateway(t, n)
			var before, after runtime.MemStats
			for round := range rounds {
				change := p.Snapshot().Apply(int64(round+2), []model.Record{c.edit(t, round+1)}, nil)
				runtime.ReadMemStats(&before)
				got := measure(shared, func() { p.Apply(change) })
				runtime.ReadMemStats(&after)
				if got != c.want && round > 2 { // contents that were there before are not encoded again
					t.Errorf("%s: with %d routes it encodes %+v, want %+v", c.name, n, got, c.want)
				}
				if round >= rounds/2 { // the first edits fill tables
					allocated[n] += float64(after.TotalAlloc-before.TotalAlloc) / (rounds / 2)
				}
			}
		}
		few, many := gatewayRoutes[0], gatewayRoutes[1]
		t.Logf("%s: %.0f bytes with %d routes, %.0f with %d", c.name, allocated[few], few, allocated[many], many)
		if allocated[many] > allocated[few]+10*float64(many-few) {
			t.Errorf("%s: it allocates %.0f bytes with %d routes, %.0f with %d", c.name, allocated[few], few, allocated[many], many)
		}
	}
}

// A new host at a gateway of many hosts replaces no virtual host. An edit replaces its own. Only the routes of existing
// hosts may wait for clusters that do not exist yet (push/delta).
func TestNewHostReplacesNone(t *testing.T) {
	p, _, gw := routedGateway(t, 500)
	for i, c := range []struct {
		route model.Record
		want  string
	}{
		{tenantRoute(t, 10_000, 0), ""},
		{tenantRoute(t, 10_001, 0), ""},
		{tenantRoute(t, 123, 1), " r123.test:80"},
	} {
		before := gw.Set().Types[xds.Route].Get("http.80")
		p.Apply(p.Snapshot().Apply(int64(i+2), []model.Record{c.route}, nil))
		now, got := gw.Set().Types[xds.Route].Get("http.80"), ""
		for f := range now.Replaced(before) {
			got += " " + f.Name
		}
		if before == nil || now == before || got != c.want {
			t.Errorf("%v: replaced are %q, want %q", c.route.Meta().Key, got, c.want)
		}
	}
}

// BenchmarkGatewayEdit: plan and build of one edit at a gateway.
func BenchmarkGatewayEdit(b *testing.B) {
	for _, c := range gatewayEdits {
		for _, n := range gatewayRoutes {
			b.Run(fmt.Sprintf("%s/routes=%d", c.name, n), func(b *testing.B) {
				p, _, _ := routedGateway(b, n)
				var changes []mirror.Change
				s := p.Snapshot()
				for i := range b.N {
					c := s.Apply(int64(i+2), []model.Record{c.edit(b, i+1)}, nil)
					changes, s = append(changes, c), c.New
				}
				b.ResetTimer()
				for _, c := range changes {
					p.Apply(c)
				}
			})
		}
	}
}
