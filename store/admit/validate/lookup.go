package validate

import (
	"iter"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// lookup implements normal.Lookup for the webhook. The normaliser reads other objects through it. The lookup has the
// mesh configuration, the tenants, and the owners of hosts and addresses. Pods, Nodes, Namespaces and roles are
// missing, because the webhook validates only objects of Istio.
type lookup struct {
	*owners
	tenants Tenants
	mesh    *meshv1.MeshConfig
}

var _ normal.Lookup = lookup{}

// Mesh implements normal.Lookup: it returns the mesh configuration, which must not be modified.
func (l lookup) Mesh() *meshv1.MeshConfig { return l.mesh }

// Tenant implements normal.Owners: it returns the tenant of a namespace, and whether it is known. Without Tenants, the
// result is the namespace itself and false.
func (l lookup) Tenant(namespace string) (string, bool) {
	if l.tenants == nil {
		return namespace, false
	}
	return l.tenants(namespace)
}

// Pod implements normal.Lookup. The result is always nil: no Pod is known.
func (lookup) Pod(object.ID) *normal.Pod { return nil }

// PodAt implements normal.Lookup. The result is always nil: no Pod is known.
func (lookup) PodAt(object.ID) *normal.Pod { return nil }

// Node implements normal.Lookup. The result is always nil: no Node is known.
func (lookup) Node(object.ID) *normal.Node { return nil }

// Nodes implements normal.Lookup. The sequence is empty: no Node is known.
func (lookup) Nodes(origin.Origin) iter.Seq[*normal.Node] { return func(func(*normal.Node) bool) {} }

// Namespace implements normal.Lookup. The result is always nil: no Namespace is known.
func (lookup) Namespace(object.ID) *normal.Namespace { return nil }

// Role implements normal.Lookup. The result is always nil: no role is known.
func (lookup) Role(object.ID) *normal.Role { return nil }

// Networks implements normal.Lookup. The result is always nil: no networks are known.
func (lookup) Networks() *meshv1.MeshNetworks { return nil }

// Automatic implements normal.Lookup. The result is always nil: automatic addresses are no reason to refuse an object.
func (lookup) Automatic(object.ID) map[string][]string { return nil }

// AutomaticAt implements normal.Lookup. The result is always zero: no automatic address is known.
func (lookup) AutomaticAt(object.ID) object.ID { return object.ID{} }

// Resolved implements normal.Lookup. The result is always nil: names of an object under review are not resolved yet.
func (lookup) Resolved(object.ID) []string { return nil }

// Keys implements normal.Lookup. The result is an empty key set, so no warning reports keys that were not fetched yet.
func (lookup) Keys(object.ID) normal.Keys { return normal.Keys{Set: "{}"} }
