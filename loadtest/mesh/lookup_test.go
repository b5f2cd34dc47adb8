package mesh

import (
	"iter"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// lookup joins endpoints with the folder's Pods.
type lookup struct {
	normal.Nobody
	pods map[string]*normal.Pod
}

func (l lookup) Pod(id object.ID) *normal.Pod               { return l.pods[id.Namespace+"/"+id.Name] }
func (l lookup) PodAt(object.ID) *normal.Pod                { return nil } // all endpoints of the mesh name their Pods
func (l lookup) Node(object.ID) *normal.Node                { return nil }
func (l lookup) Nodes(origin.Origin) iter.Seq[*normal.Node] { return func(func(*normal.Node) bool) {} }
func (l lookup) Namespace(object.ID) *normal.Namespace      { return nil }
func (l lookup) Mesh() *meshv1.MeshConfig                   { return &meshv1.MeshConfig{} }
func (l lookup) Role(object.ID) *normal.Role                { return nil }
func (l lookup) Networks() *meshv1.MeshNetworks             { return nil }
func (l lookup) Resolved(object.ID) []string                { return nil }
func (l lookup) Automatic(object.ID) map[string][]string    { return nil }
func (l lookup) AutomaticAt(object.ID) object.ID            { return object.ID{} }
func (l lookup) Keys(object.ID) (k normal.Keys)             { return k }
