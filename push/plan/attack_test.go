package plan

import (
	"fmt"
	"strings"
	"testing"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// attacks are small configurations of one tenant, ns0, that result in many resources, by name; n scales each.
var attacks = map[string]func(t testing.TB, n int) []model.Record{
	"patches of clusters": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: CLUSTER", mergesMetadata)}
	},
	"patches of routes": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: HTTP_ROUTE", mergesMetadata)}
	},
	"patches that add routes": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: HTTP_ROUTE", "operation: INSERT_FIRST, value: {name: r%d, match: {prefix: /%[1]d}, direct_response: {status: 200}}")}
	},
	"patches of filters": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}",
			`operation: INSERT_FIRST, value: {name: f%d, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}`)}
	},
	"one bad patch of clusters": func(t testing.TB, n int) []model.Record {
		return []model.Record{manyPatches(t, n, "applyTo: CLUSTER", mergesMetadata), rec(t, model.KindEnvoyFilter, "ns0/bad",
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
	"one virtual service": func(t testing.TB, n int) []model.Record { return []model.Record{oneVirtualService(t, n)} },
	"patches of one virtual service": func(t testing.TB, n int) []model.Record {
		return []model.Record{oneVirtualService(t, n), manyPatches(t, n, "applyTo: HTTP_ROUTE", mergesMetadata)}
	},
	"services of a workload": func(t testing.TB, n int) (all []model.Record) {
		for i := range 4 {
			var ports strings.Builder
			for k := range n {
				fmt.Fprintf(&ports, "{name: p%d, number: %d, protocol: PROTOCOL_HTTP}, ", k, 1000+n*i+k)
			}
			all = append(all, workloadService(t, fmt.Sprintf("attack%d", i), ports.String()))
		}
		return all
	},
	"policies of a workload": func(t testing.TB, n int) (all []model.Record) {
		all = append(all, workloadService(t, "attack", `{name: a, number: 1000, protocol: PROTOCOL_HTTP},
			{name: b, number: 1001, protocol: PROTOCOL_HTTP}, {name: c, number: 1002, protocol: PROTOCOL_HTTP}`))
		for i := range 4 * n {
			all = append(all, security(t, model.KindAuthorizationPolicy, fmt.Sprintf("ns0/attack%d", i),
				fmt.Sprintf("rules: [{to: [{operation: {paths: [/a%d, /b%d]}}]}]", i, i), &securityv1.AuthorizationPolicy{}))
		}
		return all
	},
	"endpoints of a host": endpointsOfHost,
	"hosts that share addresses": func(t testing.TB, n int) []model.Record {
		var list strings.Builder
		for i := range 12 * n {
			fmt.Fprintf(&list, "241.0.%d.%d, ", i/250, i%250)
		}
		return []model.Record{rec(t, model.KindServiceEntry, "ns0/attack", fmt.Sprintf("hosts: [h0.example, h1.example]\naddresses: [%s]\n"+
			"exportTo: ['*']\nexternal: true\nresolution: RESOLUTION_EDS\nports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]", &list))}
	},
	"addresses of many hosts": func(t testing.TB, n int) []model.Record {
		var list, hosts strings.Builder
		for i := range n {
			fmt.Fprintf(&list, "241.0.%d.%d, ", i/250, i%250)
		}
		for i := range 128 {
			fmt.Fprintf(&hosts, "h%d.example, ", i)
		}
		return []model.Record{rec(t, model.KindServiceEntry, "ns0/attack", fmt.Sprintf("hosts: [%s]\naddresses: [%s]\n"+
			"exportTo: ['*']\nexternal: true\nresolution: RESOLUTION_NONE\nports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]", &hosts, &list))}
	},
	"subsets of a large host": func(t testing.TB, n int) []model.Record {
		all := endpointsOfHost(t, n)
		var subsets strings.Builder
		for k := range n / 5 {
			fmt.Fprintf(&subsets, "{name: v%d}, ", k)
		}
		rule := fmt.Sprintf("host: s1.ns0.svc.cluster.local\nsubsets: [%s]", &subsets)
		return append(all, rec(t, model.KindDestinationRule, "ns0/attack", rule))
	},
	"service entries of TLS": func(t testing.TB, n int) (all []model.Record) { return entriesOf(t, n, "TLS") },
	"service entries":        func(t testing.TB, n int) (all []model.Record) { return entriesOf(t, n, "HTTP") },
	"service entries of TCP": func(t testing.TB, n int) (all []model.Record) { return entriesOf(t, n, "TCP") },
}

// mergesMetadata is a patch that adds an entry to the metadata of a resource.
const mergesMetadata = "operation: MERGE, value: {metadata: {filter_metadata: {m%d: {a: %[1]d}}}}"

// oneVirtualService returns a VirtualService of 20 routes for each of n.
func oneVirtualService(t testing.TB, n int) model.Record {
	var http strings.Builder
	for k := range 20 * n {
		fmt.Fprintf(&http, "{match: [{uri: {prefix: /%d}}], route: [{destination: {host: s1.ns0.svc.cluster.local}}]}, ", k)
	}
	return rec(t, model.KindVirtualService, "ns0/attack", fmt.Sprintf("hosts: [s1.ns0.svc.cluster.local]\nhttp: [%s]", &http))
}

// workloadService returns a Service that selects the tenant's own workload.
func workloadService(t testing.TB, name, ports string) model.Record {
	return rec(t, model.KindService, "ns0/"+name,
		fmt.Sprintf("hosts: [%s.ns0.svc.cluster.local]\nexportTo: ['*']\nselector: {app: attack}\nports: [%s]", name, ports))
}

// entriesOf returns five ServiceEntries of 256 hosts each, or of fewer hosts if there are few ports.
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

// manyPatches returns an EnvoyFilter of n patches; each is formatted with its number.
func manyPatches(t testing.TB, n int, of, patch string) model.Record {
	var all strings.Builder
	for i := range n {
		all.WriteString("{" + of + ", patch: {" + fmt.Sprintf(patch, i) + "}}, ")
	}
	return rec(t, model.KindEnvoyFilter, "ns0/attack", "configPatches: ["+all.String()+"]")
}

// endpointsOfHost returns ten records of 20 endpoints each for each of n.
func endpointsOfHost(t testing.TB, n int) (all []model.Record) {
	for i := range 10 {
		var endpoints []string
		for k := range 20 * n {
			endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d v1", 100+i, k/250, 1+k%250))
		}
		ports := "{name: http, number: 8080}, {name: raw, number: 9000}"
		all = append(all, eps(t, fmt.Sprintf("ns0/s1-attack%d", i), ports, endpoints...))
	}
	return all
}
