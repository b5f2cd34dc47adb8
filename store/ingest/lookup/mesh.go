package lookup

import (
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Mesh is the parsed form of a mesh configuration. Each of its two parts, Config and Networks, is the last good version
// of this part.
type Mesh struct {
	Config   *meshv1.MeshConfig   // nil: no good version is known
	Record   model.Record         // record made from Config; nil without Config
	Networks *meshv1.MeshNetworks // empty: the ConfigMap has no key "meshNetworks"; nil: no good version is known
	// Unsaid reports that the ConfigMap has no key "mesh".
	Unsaid bool
	// StaleConfig and StaleNetworks report that the present object has no good version of the part. The part is then an
	// earlier version, or nil.
	StaleConfig, StaleNetworks bool
	Problems                   []object.Problem // problems of the present object
}

// Special names for Table.MarkReaders. Each stands for all objects that use one part of the mesh configuration. Sets of
// these objects would need much memory.
var (
	meshUsers    = object.ID{Kind: "users of the mesh configuration"}
	networkUsers = object.ID{Kind: "users of the mesh's networks"}
)

// readsNetworks lists the kinds whose records depend on the mesh's networks.
var readsNetworks = map[string]bool{"EndpointSlice": true, "Pod": true, "Service": true}

func unreadMesh() any { return &Mesh{StaleConfig: true, StaleNetworks: true} }

// parseMesh parses a mesh configuration. The parameter previous is the previous *Mesh of the object, or nil. A part
// without a good version stays as it was. If key mesh is missing, the previous Config stays; without a previous one the
// defaults apply.
func parseMesh(n *normal.Normalizer, o *object.Object, previous any) (any, []object.Problem) {
	last := as[*Mesh](previous)
	if last == nil {
		last = &Mesh{}
	}
	read := n.ParseMesh(o)
	m := &Mesh{Config: read.Config, Networks: read.Networks, Unsaid: read.Unsaid, Problems: read.Problems}
	if m.Unsaid && last.Config != nil {
		m.Config, m.Problems = nil, append(m.Problems, MeshMissing(o.ID, "data.mesh", o.Location))
	}
	if m.Config != nil {
		record, err := normal.MeshRecord(m.Config)
		if err != nil {
			m.Config, m.Problems = nil, append(m.Problems, unfit(o, "data.mesh", err))
		}
		m.Record = record
	}
	if m.StaleConfig = m.Config == nil; m.StaleConfig {
		m.Config, m.Record = last.Config, last.Record
	}
	if m.StaleNetworks = m.Networks == nil; m.StaleNetworks {
		m.Networks = last.Networks
	}
	return m, m.Problems
}

// Gateways returns the record of the gateways that the meshNetworks in effect define. The record is nil if they define
// no gateway with a known address. refs are the IDs of the host names that were looked up, in any order. If no record
// can be made, gateways is nil and wrong contains a problem of o, the object with the mesh configuration. Otherwise
// wrong is nil.
func (t *Table[E]) Gateways(o *object.Object) (gateways model.Record, refs []object.ID, wrong []object.Problem) {
	gateways, refs, err := t.normal.MeshGateways(t.Networks(), t.Resolved)
	if err != nil {
		return nil, refs, []object.Problem{unfit(o, "data.meshNetworks", err)}
	}
	return gateways, refs, nil
}

// unfit returns the problem of a part of a mesh configuration that cannot become a record.
func unfit(o *object.Object, field string, err error) object.Problem {
	return object.Problem{ID: o.ID, Location: o.Location, Field: field, Code: problem.Invalid, Severity: problem.Error, Message: err.Error()}
}

// MeshMissing returns the problem of a missing mesh configuration whose last good version stays in effect. field is the
// missing field; empty: the object is missing.
func MeshMissing(id object.ID, field, location string) object.Problem {
	return object.Problem{ID: id, Location: location, Field: field, Code: problem.Held, Severity: problem.Error,
		Message: "is missing: the last good mesh configuration stays in effect. " +
			"Put it back, or, for a mesh with all defaults, one with `mesh: \"{}\"`"}
}

// indexMesh updates the mesh configuration in effect. A part without a good version stays as it was. Without any mesh
// configuration the defaults apply.
func indexMesh(x *indexes, id object.ID, _, after any) {
	if x.meshes[id] = as[*Mesh](after); after == nil {
		delete(x.meshes, id)
	}
	config, networks := x.config, x.networks
	x.config, x.networks = model.DefaultMesh().Spec, &meshv1.MeshNetworks{}
	x.configChanged, x.networksChanged = false, false
	if m := x.meshes[x.meshInEffect()]; m != nil {
		if x.config = m.Config; m.Config == nil {
			x.config = config
		}
		if x.networks = m.Networks; m.Networks == nil {
			x.networks = networks
		}
	}
	x.configChanged, x.networksChanged = !proto.Equal(config, x.config), !proto.Equal(networks, x.networks)
}

// meshReaders marks the readers of the parts that indexMesh has changed. It runs after indexMesh.
func meshReaders(x *indexes, _ object.ID, _, _ any, mark func(name object.ID)) {
	if x.configChanged {
		mark(meshUsers)
	}
	if x.networksChanged {
		mark(networkUsers)
	}
}

// meshInEffect returns the ID of the object with the mesh configuration. If two sources have such an object, the source
// that takes precedence (origin.Before) decides. The result is the zero ID if no such object exists.
func (x *indexes) meshInEffect() object.ID {
	for id := range x.meshes {
		before := id
		var is bool
		if before.Origin, is = id.Origin.Before(); !is || x.meshes[before] == nil {
			return id
		}
	}
	return object.ID{}
}

// MeshID returns the ID of the object with the mesh configuration in effect. If no such object exists, it returns
// normal.Normalizer.MeshID.
func (t *Table[E]) MeshID() object.ID {
	if id := t.index.meshInEffect(); id != (object.ID{}) {
		return id
	}
	return t.normal.MeshID()
}

// MeshOf returns the parsed mesh configuration of a Node, read-only. It returns nil for Nodes of other objects, and for
// a Node without a parsed form.
func (n *Node[E]) MeshOf() *Mesh { return as[*Mesh](n.parsed) }

// RestoreMesh replaces the parsed mesh configuration of a Node. The Node must have the ID of a mesh configuration
// (normal.Normalizer.IsMesh), and need not have an object. If a part in effect changes, its readers are marked. The
// Table retains m, which must not change afterwards.
func (t *Table[E]) RestoreMesh(n *Node[E], m *Mesh) {
	t.set(rowOf(t.normal, n.ID()), n, m)
}
