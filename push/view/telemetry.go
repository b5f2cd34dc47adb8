package view

import (
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// telemetryOf returns the key of the oldest Telemetry in the proxy's namespace that selects the proxy by a selector or
// by targets. Without such a Telemetry it returns the zero Key
// (https://istio.io/latest/docs/reference/config/telemetry/, scope and inheritance).
func telemetryOf(s *mirror.Snapshot, n Node) model.Key {
	var first *model.Telemetry
	for r := range s.In(model.KindTelemetry, n.Namespace) {
		t := r.(*model.Telemetry)
		selector := t.Spec.GetSelector().GetMatchLabels()
		if len(selector) > 0 && model.Attaches(t.Key, t.Spec.GetTargetRefs(), selector, n.Namespace, n.Labels) &&
			(first == nil || t.Older(&first.Head) < 0) {
			first = t
		}
	}
	if first == nil {
		return model.Key{}
	}
	return first.Key
}

// self returns the node's description in its tracing spans. The result is zero for an application without a proxy, and
// for a proxy that sends no spans. A proxy may send spans if a record of its namespace or of the whole mesh configures
// tracing. A proxy may also send spans if the mesh has enableTracing and the ProxyConfig that applies to the node
// configures tracing.
func (x *Index) self(s *mirror.Snapshot, root string, n Node, own, mesh proxyconfig.Settings) Self {
	bootstrapped := own.Tracing != "" && s.Mesh().Spec.GetEnableTracing()
	if n.Kind == Proxyless || x.spans[""]+x.spans[root]+x.spans[n.Namespace] == 0 && !bootstrapped {
		return Self{}
	}
	return Self{Sends: true, Tracing: proxyconfig.OwnOf(own.Tracing, mesh.Tracing), Name: n.Service,
		Service:  n.Labels["service.istio.io/canonical-name"],
		Revision: n.Labels["service.istio.io/canonical-revision"],
		Mesh:     n.Metadata["MESH_ID"], Cluster: n.Metadata["CLUSTER_ID"]}
}

// bringsTracer reports whether an EnvoyFilter may configure a tracer. It may do so if one of its patches has a field
// "tracing".
func bringsTracer(f *networkingv1.EnvoyFilter) bool {
	return slices.ContainsFunc(f.GetConfigPatches(), func(p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) bool {
		return namesTracing(structpb.NewStructValue(p.GetPatch().GetValue()))
	})
}

// namesTracing reports whether a value contains a field "tracing" at any depth.
func namesTracing(v *structpb.Value) bool {
	for name, field := range v.GetStructValue().GetFields() {
		if name == "tracing" || namesTracing(field) {
			return true
		}
	}
	return slices.ContainsFunc(v.GetListValue().GetValues(), namesTracing)
}
