package input

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/store/model"
)

// Meshes are projections of the mesh configuration: for the Specs of each package of builders, the fields that these builders read, and no
// others. A projection stays the pointer that it is while these fields have the same content, so an edit of one field has resources built
// again by those builders alone that read it.
type Meshes struct {
	Cluster, Listener, VirtualHost *model.Mesh
}

// later are the projections of another mesh configuration.
func (m Meshes) later(mesh *model.Mesh) Meshes {
	return Meshes{
		Cluster:     project(mesh, cluster.MeshFields, m.Cluster),
		Listener:    project(mesh, listener.MeshFields, m.Listener),
		VirtualHost: project(mesh, vhost.MeshFields, m.VirtualHost),
	}
}

// project is a mesh configuration with some of its fields; the one before, where that has the same content.
func project(mesh *model.Mesh, fields []protoreflect.Name, before *model.Mesh) *model.Mesh {
	spec := &meshv1.MeshConfig{}
	from, to := mesh.Spec.ProtoReflect(), spec.ProtoReflect()
	for _, name := range fields {
		if field := from.Descriptor().Fields().ByName(name); from.Has(field) {
			to.Set(field, from.Get(field)) // shared: nothing of a record is ever changed
		}
	}
	r, err := model.New(mesh.Key, mesh.Created, spec)
	if err != nil { // all of it was encoded before
		panic(err)
	}
	if before != nil && before.Hash == r.Meta().Hash {
		return before
	}
	return r.(*model.Mesh)
}
