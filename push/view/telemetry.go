package view

import (
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// telemetryOf finds the oldest Telemetry of the proxy's namespace whose selector picks it; zero: none does
// (https://istio.io/latest/docs/reference/config/telemetry/, scope and inheritance).
func telemetryOf(s *mirror.Snapshot, n Node) model.Key {
	var first *model.Telemetry
	for r := range s.In(model.KindTelemetry, n.Namespace) {
		t := r.(*model.Telemetry)
		selector := t.Spec.GetSelector().GetMatchLabels()
		if len(selector) > 0 && model.Matches(selector, n.Labels) && (first == nil || t.Older(&first.Head) < 0) {
			first = t
		}
	}
	if first == nil {
		return model.Key{}
	}
	return first.Key
}

// selfOf is how a node names itself.
func selfOf(n Node) Self {
	return Self{Sends: true, Name: n.Service, Service: n.Labels["service.istio.io/canonical-name"], Revision: n.Labels["service.istio.io/canonical-revision"],
		Mesh: n.Metadata["MESH_ID"], Cluster: n.Metadata["CLUSTER_ID"]}
}
