package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/model"
)

// attacks are configurations of one tenant, ns0, that are small and make much, by name. n scales each.
var attacks = map[string]func(t testing.TB, n int) []model.Record{
	"patches of clusters": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: CLUSTER", "operation: MERGE, value: {metadata: {filter_metadata: {m%d: {a: %[1]d}}}}")}
	},
	"patches of routes": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: HTTP_ROUTE", "operation: MERGE, value: {metadata: {filter_metadata: {m%d: {a: %[1]d}}}}")}
	},
	"patches that add routes": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: HTTP_ROUTE", "operation: INSERT_FIRST, value: {name: r%d, match: {prefix: /%[1]d}, direct_response: {status: 200}}")}
	},
	"patches of filters": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}",
			`operation: INSERT_FIRST, value: {name: f%d, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}`)}
	},
	"one bad patch of clusters": func(t testing.TB, n int) []model.Record {
		good := "operation: MERGE, value: {metadata: {filter_metadata: {m%d: {a: %[1]d}}}}"
		return []model.Record{manyPatches(t, n, "applyTo: CLUSTER", good), rec(t, model.KindEnvoyFilter, "ns0/bad",
			"configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {connect_timeout: 0s}}}]")}
	},
	"bad patches of clusters": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: CLUSTER", "operation: MERGE, value: {connect_timeout: 0s, metadata: {filter_metadata: {m%d: {a: %[1]d}}}}")}
	},
	"rules with subsets": func(t testing.TB, n int) (all []model.Record) {
		for i := range min(400, 4*n) {
			var subsets strings.Builder
			for k := range n {
				fmt.Fprintf(&subsets, "{name: v%d, labels: {version: v%d}}, ", k, k)
			}
			all = append(all, rec(t, model.KindDestinationRule, fmt.Sprintf("ns0/attack%d", i), fmt.Sprintf("host: s%d.ns%d.svc.cluster.local\nsubsets: [%s]", i, i/10, &subsets)))
		}
		return all
	},
	"virtual services with routes": func(t testing.TB, n int) (all []model.Record) {
		for i := range min(400, 4*n) {
			h := fmt.Sprintf("s%d.ns%d.svc.cluster.local", i, i/10)
			var http strings.Builder
			for k := range n {
				fmt.Fprintf(&http, "{match: [{uri: {prefix: /%d}}], route: [{destination: {host: %s}}]}, ", k, h)
			}
			all = append(all, rec(t, model.KindVirtualService, fmt.Sprintf("ns0/attack%d", i), fmt.Sprintf("hosts: [%s]\nhttp: [%s]", h, &http)))
		}
		return all
	},
	"service entries":        func(t testing.TB, n int) (all []model.Record) { return entriesOf(t, n, "HTTP") },
	"service entries of TCP": func(t testing.TB, n int) (all []model.Record) { return entriesOf(t, n, "TCP") },
}

// entriesOf are five ServiceEntries of 256 hosts, or fewer where there are few ports.
func entriesOf(t testing.TB, ports int, protocol string) (all []model.Record) {
	for i := range 5 {
		var hosts, list strings.Builder
		for k := range min(256, 4*ports) {
			fmt.Fprintf(&hosts, "h%d.e%d.example, ", k, i)
		}
		for k := range ports {
			fmt.Fprintf(&list, "{name: p%d, number: %d, protocol: PROTOCOL_%s}, ", k, 1000+k, protocol)
		}
		all = append(all, rec(t, model.KindServiceEntry, fmt.Sprintf("ns0/attack%d", i),
			fmt.Sprintf("hosts: [%s]\nexportTo: ['*']\nexternal: true\nresolution: RESOLUTION_NONE\nports: [%s]", &hosts, &list)))
	}
	return all
}

// manyPatches is an EnvoyFilter of n patches, by the format of each.
func manyPatches(t testing.TB, n int, of, patch string) model.Record {
	var all strings.Builder
	for i := range n {
		all.WriteString("{" + of + ", patch: {" + fmt.Sprintf(patch, i) + "}}, ")
	}
	return rec(t, model.KindEnvoyFilter, "ns0/attack", "configPatches: ["+all.String()+"]")
}

// BenchmarkAttack is the first join of a proxy of a tenant that attacks a mesh of 500 services, on a planner that has planned for another one.
// longest-ms is the longest piece of it, and of the change that comes before.
func BenchmarkAttack(b *testing.B) {
	for name, attack := range attacks {
		for _, n := range []int{25, 100, 250, 500} {
			b.Run(fmt.Sprintf("%s/n=%d", strings.ReplaceAll(name, " ", "_"), n), func(b *testing.B) {
				base := bigMesh(b, 500)
				c := base.Apply(2, attack(b, n), nil)
				var longest time.Duration
				piece := func(f func(over func() bool)) {
					began := time.Now()
					f(func() bool { return time.Since(began) >= maxTurn })
					longest = max(longest, time.Since(began))
				}
				b.ReportAllocs()
				for range b.N {
					b.StopTimer()
					p := New(Settings{Pool: &pool.Pool{}, Snapshot: base})
					p.Join(node("ns1", "a"))
					p.Begin(c)
					for more := true; more; {
						piece(func(over func() bool) { more = p.Step(over) })
					}
					piece(func(func() bool) { p.End() })
					b.StartTimer()
					j := p.BeginJoin(node("ns0", "a"))
					for more := true; more; {
						piece(func(over func() bool) { more = j.Step(over) })
					}
					piece(func(func() bool) { j.End() })
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			})
		}
	}
}
