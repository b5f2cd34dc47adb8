package validate

import (
	"iter"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// lookup implements normal.Lookup for the webhook. It has the mesh configuration, the tenants, and the owners of hosts
// and addresses. Pods, Nodes, Namespaces and roles are missing, since the webhook validates objects of Istio only.
type lookup struct {
	*owners
	tenants Tenants
	mesh    *meshv1.MeshConfig
}

var _ normal.Lookup = lookup{}

// Mesh implements normal.Lookup.
func (l lookup) Mesh() *meshv1.MeshConfig { return l.mesh }

// Tenant implements normal.Owners. Without Tenants no tenant is known.
func (l lookup) Tenant(namespace string) (string, bool) {
	if l.tenants == nil {
		return namespace, false
	}
	return l.tenants(namespace)
}

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

// Automatic implements normal.Lookup. The result is empty: automatic addresses are no reason to refuse an object.
func (lookup) Automatic(object.ID) map[string][]string { return nil }

// AutomaticAt implements normal.Lookup.
func (lookup) AutomaticAt(object.ID) object.ID { return object.ID{} }

// Resolved implements normal.Lookup. The result is empty: names of an object under review are not resolved yet.
func (lookup) Resolved(object.ID) []string { return nil }

// Keys implements normal.Lookup. The result is an empty key set, so no warning reports keys that were not fetched yet.
func (lookup) Keys(object.ID) normal.Keys { return normal.Keys{Set: "{}"} }
