package gateway

import (
	"google.golang.org/protobuf/types/known/structpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
)

// importsOf returns the Imports of a scope, which decide the hosts that its routers can reach. By default, and for a
// gateway between networks, the Imports include all exported hosts. If the control plane filters the clusters of
// gateways, the Imports include three groups of hosts (istio: pilot/pkg/model/push_context.go, GatewayServices). The
// first group has the destinations of VirtualServices that are bound to the scope's Gateways. The second group has the
// services of extension providers. The third group has the hosts of clusters that the routers' EnvoyFilters name.
func importsOf(in *input.Input, key view.Scope, patches input.PatchSet) *host.Imports {
	if !key.Edge.Value().Routed || passesBySNI(in, key) {
		return host.ImportAll()
	}
	hosts := Providers(in.Mesh.Spec)
	for _, p := range patches {
		Clusters(structpb.NewStructValue(p.Config().GetPatch().GetValue()), func(_, name string) { hosts = append(hosts, name) })
	}
	return host.ImportRouted(hosts)
}

// Providers returns the field service of each extension provider in MeshConfig.
func Providers(mesh *meshv1.MeshConfig) (hosts []string) {
	for _, p := range mesh.GetExtensionProviders() {
		m := p.ProtoReflect()
		kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
		if kind == nil {
			continue
		}
		if of, is := m.Get(kind).Message().Interface().(interface{ GetService() string }); is && of.GetService() != "" {
			hosts = append(hosts, of.GetService())
		}
	}
	return hosts
}

// Clusters calls the function found for each string in v that is a cluster name with a host,
// DIRECTION|PORT|SUBSET|HOST. The calls are in no particular order.
func Clusters(v *structpb.Value, found func(direction, host string)) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		if direction, _, _, name, ok := xds.ParseCluster(k.StringValue); ok && name != "" {
			found(direction, name)
		}
	case *structpb.Value_StructValue:
		for _, field := range k.StructValue.GetFields() {
			Clusters(field, found)
		}
	case *structpb.Value_ListValue:
		for _, one := range k.ListValue.GetValues() {
			Clusters(one, found)
		}
	}
}
