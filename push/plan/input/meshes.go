package input

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/store/model"
)

// Meshes contains projections of the mesh configuration, one for each package of builders (push/build/cluster, listener
// and vhost). A projection contains only the fields that these builders read, and is a part of their Specs. The pointer
// to a projection stays the same while its fields have the same content. So an edit of a field changes only the Specs
// of builders that read it.
type Meshes struct {
	Cluster, Listener, VirtualHost *model.Mesh
}

// later returns the projections of another mesh configuration. Projections with unchanged content keep their pointers.
func (m Meshes) later(mesh *model.Mesh) Meshes {
	return Meshes{
		Cluster:     project(mesh, cluster.MeshFields, m.Cluster),
		Listener:    project(mesh, listener.MeshFields, m.Listener),
		VirtualHost: project(mesh, vhost.MeshFields, m.VirtualHost),
	}
}

// project returns a copy of a mesh configuration with only the given fields. If the content of the copy equals that of
// the previous projection, which may be nil, project returns the previous projection instead.
func project(mesh *model.Mesh, fields []protoreflect.Name, previous *model.Mesh) *model.Mesh {
	spec := &meshv1.MeshConfig{}
	from, to := mesh.Spec.ProtoReflect(), spec.ProtoReflect()
	for _, name := range fields {
		if field := from.Descriptor().Fields().ByName(name); from.Has(field) {
			to.Set(field, from.Get(field)) // shared with the record, which is immutable
		}
	}
	r, err := model.New(mesh.Key, mesh.Created, spec)
	if err != nil { // impossible: the source of all fields was encoded before
		panic(err)
	}
	if previous != nil && previous.Hash == r.Meta().Hash {
		return previous
	}
	return r.(*model.Mesh)
}
