package plan

import (
	"testing"

	"navarch.io/navarch/store/model"
)

// Two ServiceEntries define one service, and only the one with port 90 is inside the mesh. A gateway between networks
// has a cluster by SNI for this port, so a patch that removes the cluster is counted.
func TestRemovalsOfJoinedEntries(t *testing.T) {
	p, _, _ := gatewayPlanner(
		rec(t, model.KindServiceEntry, "a/outside@1", "{hosts: [joined.test], exportTo: ['*'], external: true, ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}"),
		rec(t, model.KindServiceEntry, "a/inside@2", "{hosts: [joined.test], exportTo: ['*'], ports: [{name: more, number: 90, protocol: PROTOCOL_HTTP}]}"),
		rec(t, model.KindGateway, "edge/cross",
			"{selector: {app: gw}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: ['*.test'], tls: {mode: AUTO_PASSTHROUGH}}]}"),
		rec(t, model.KindEnvoyFilter, "istio-system/all", `configPatches:
- {applyTo: CLUSTER, match: {context: GATEWAY, cluster: {name: outbound_.80_._.joined.test}}, patch: {operation: REMOVE}}
- {applyTo: CLUSTER, match: {context: GATEWAY, cluster: {name: outbound_.90_._.joined.test}}, patch: {operation: REMOVE}}
`))
	got := p.Patches()
	if len(got) != 2 || got[0].Changed != 0 || got[1].Changed != 1 {
		t.Errorf("%+v, want 0 and 1 removed clusters", got)
	}
}
