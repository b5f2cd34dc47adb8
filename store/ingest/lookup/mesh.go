package lookup

import (
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Mesh is the parsed form of a mesh configuration: the last good version of each of its two parts.
type Mesh struct {
	Config   *meshv1.MeshConfig   // nil: none could be read
	Record   model.Record         // of Config
	Networks *meshv1.MeshNetworks // nil: none could be read
	// Unsaid: the object has no key mesh.
	Unsaid bool
	// The present object does not have the part in a readable form.
	StaleConfig, StaleNetworks bool
	Problems                   []object.Problem
}

// Names that stand for many readers at once. Each reader would take memory of its own in a set of readers.
var (
	meshUsers    = object.ID{Kind: "users of the mesh configuration"}
	networkUsers = object.ID{Kind: "users of the mesh's networks"}
)

// readsNetworks lists the kinds whose records depend on the mesh's networks.
var readsNetworks = map[string]bool{"EndpointSlice": true, "Pod": true, "Service": true}

func unreadMesh() any { return &Mesh{StaleConfig: true, StaleNetworks: true} }

// parseMesh reads a mesh configuration. A part that cannot be read, or key mesh if it is missing, stays as it was.
func parseMesh(n *normal.Normalizer, o *object.Object, before any) (any, []object.Problem) {
	last := as[*Mesh](before)
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

// Gateways makes the record of the gateways of the mesh's networks; nil: no network has one. wrong says why no record can
// be made. refs are the names that were looked up.
func (t *Table[E]) Gateways(o *object.Object) (gateways model.Record, refs []object.ID, wrong []object.Problem) {
	gateways, refs, err := t.normal.MeshGateways(t.Networks(), t.Resolved)
	if err != nil {
		return nil, refs, []object.Problem{unfit(o, "data.meshNetworks", err)}
	}
	return gateways, refs, nil
}

// unfit reports a part of a mesh configuration of which no record can be made.
func unfit(o *object.Object, field string, err error) object.Problem {
	return object.Problem{ID: o.ID, Location: o.Location, Field: field, Code: problem.Invalid, Severity: problem.Error, Message: err.Error()}
}

// MeshMissing reports a mesh configuration, or a field of one, that is missing and whose last good version stays in
// effect.
func MeshMissing(id object.ID, field, location string) object.Problem {
	return object.Problem{ID: id, Location: location, Field: field, Code: problem.Held, Severity: problem.Error,
		Message: "is missing: the last good mesh configuration stays in effect. " +
			"Put it back, or, for a mesh with all defaults, one with `mesh: \"{}\"`"}
}

// indexMesh decides which mesh configuration is in effect.
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

// meshReaders runs after indexMesh.
func meshReaders(x *indexes, _ object.ID, _, _ any, mark func(name object.ID)) {
	if x.configChanged {
		mark(meshUsers)
	}
	if x.networksChanged {
		mark(networkUsers)
	}
}

// meshInEffect names the object that says the mesh configuration: of two sources the one that takes precedence
// (origin.Before). The zero ID: no object says it.
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

// MeshID names the object that says the mesh configuration, or should say it.
func (t *Table[E]) MeshID() object.ID {
	if id := t.index.meshInEffect(); id != (object.ID{}) {
		return id
	}
	return t.normal.MeshID()
}

// MeshOf returns the mesh configuration that a Node's object says; nil: the object is another one.
func (n *Node[E]) MeshOf() *Mesh { return as[*Mesh](n.parsed) }

// RestoreMesh has a Node say a mesh configuration that its object does not say. Readers are marked if it differs from
// the one before.
func (t *Table[E]) RestoreMesh(n *Node[E], m *Mesh) {
	t.set(rowOf(t.normal, n.ID()), n, m)
}
