package validate

import (
	"iter"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// lookup joins objects of Istio's kinds with the mesh configuration, and with who has which host and address. Pods,
// nodes, namespaces and roles are for Kubernetes' own kinds, which no rule of the webhook names.
type lookup struct {
	owners
	mesh *meshv1.MeshConfig
}

var _ normal.Lookup = lookup{}

// Mesh implements normal.Lookup.
func (l lookup) Mesh() *meshv1.MeshConfig { return l.mesh }

// Pod implements normal.Lookup.
func (lookup) Pod(object.ID) *normal.Pod { return nil }

// PodAt implements normal.Lookup.
func (lookup) PodAt(object.ID) *normal.Pod { return nil }

// Node implements normal.Lookup.
func (lookup) Node(object.ID) *normal.Node { return nil }

// Nodes implements normal.Lookup.
func (lookup) Nodes(origin.Origin) iter.Seq[*normal.Node] { return func(func(*normal.Node) bool) {} }

// Namespace implements normal.Lookup.
func (lookup) Namespace(object.ID) *normal.Namespace { return nil }

// Role implements normal.Lookup.
func (lookup) Role(object.ID) *normal.Role { return nil }

// Networks implements normal.Lookup.
func (lookup) Networks() *meshv1.MeshNetworks { return nil }

// Automatic implements normal.Lookup: nothing is refused for the addresses that a ServiceEntry is given.
func (lookup) Automatic(object.ID) map[string][]string { return nil }
func (lookup) AutomaticAt(object.ID) object.ID         { return object.ID{} }

// Resolved implements normal.Lookup: names are resolved for what is there already.
func (lookup) Resolved(object.ID) []string { return nil }

// Keys implements normal.Lookup: keys are fetched for what is there already, and nobody is warned that they were not.
func (lookup) Keys(object.ID) normal.Keys { return normal.Keys{Set: "{}"} }
