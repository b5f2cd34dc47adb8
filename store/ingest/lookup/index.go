package lookup

import (
	"iter"
	"net/netip"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// indexes find parsed forms (typed values made from objects) by properties other than their IDs.
type indexes struct {
	pods        podsByAddress
	addresses   *Addresses
	owners      owners
	nodes       map[origin.Origin]map[string]*normal.Node // by name
	automaticAt map[object.ID]object.ID                   // normal.AutomaticAtID of an address -> normal.AutomaticID
	demands     map[string]*demand                        // by source: origin.DNS, origin.JWKS

	meshes                         map[object.ID]*Mesh
	config                         *meshv1.MeshConfig   // in effect
	networks                       *meshv1.MeshNetworks // in effect
	configChanged, networksChanged bool                 // set by the last call of indexMesh
}

// demand contains the names that the leader has to resolve (origin.DNS) or fetch (origin.JWKS).
type demand struct {
	names   map[object.ID]bool
	changed bool
}

func newIndexes(pods func() iter.Seq2[object.ID, *normal.Pod]) *indexes {
	x := &indexes{addresses: &Addresses{users: map[netip.Addr]int32{}}, owners: newOwners(),
		nodes:       map[origin.Origin]map[string]*normal.Node{},
		automaticAt: map[object.ID]object.ID{}, demands: map[string]*demand{}, meshes: map[object.ID]*Mesh{},
		config: model.DefaultMesh().Spec, networks: &meshv1.MeshNetworks{}}
	x.pods = podsByAddress{every: pods, asked: map[podPlace]*podsHere{}}
	for _, source := range []string{origin.DNS, origin.JWKS} {
		x.demands[source] = &demand{names: map[object.ID]bool{}}
	}
	return x
}

// count updates the indexes of looked-up names. The parameter delta is 1 when the first object looks up a name, and -1
// when the last object ceases to look up the name.
func (x *indexes) count(name object.ID, delta int) {
	if normal.IsPodAt(name) {
		x.pods.count(name, delta)
		return
	}
	x.owners.count(name, delta)
	if d := x.demands[name.Origin.Source()]; d != nil {
		if d.names[name] = true; delta < 0 {
			delete(d.names, name)
		}
		d.changed = true
	}
}

func indexNode(x *indexes, id object.ID, _, after any) {
	all := x.nodes[id.Origin]
	if all == nil {
		all = map[string]*normal.Node{}
		x.nodes[id.Origin] = all
	}
	if all[id.Name] = as[*normal.Node](after); after == nil {
		if delete(all, id.Name); len(all) == 0 {
			delete(x.nodes, id.Origin)
		}
	}
}

func indexAutomatic(x *indexes, id object.ID, before, after any) {
	for at := range automaticNames(before) {
		if x.automaticAt[at] == id { // otherwise the address was assigned to another ServiceEntry since
			delete(x.automaticAt, at)
		}
	}
	for at := range automaticNames(after) {
		x.automaticAt[at] = id
	}
}

func parsedOf[V any, E any](t *Table[E], id object.ID) V {
	if n := t.objects[id]; n != nil {
		return as[V](n.parsed)
	}
	return as[V](nil)
}

// Pod implements normal.Lookup. It returns the last good version of the Pod, read-only. It returns nil if there is no
// such Pod, or if no version of it was good.
func (t *Table[E]) Pod(id object.ID) *normal.Pod { return parsedOf[*normal.Pod](t, id) }

// Node implements normal.Lookup. It returns the last good version of the Node, read-only. It returns nil if there is no
// such Node, or if no version of it was good.
func (t *Table[E]) Node(id object.ID) *normal.Node { return parsedOf[*normal.Node](t, id) }

// Nodes implements normal.Lookup. It yields the Kubernetes Nodes of an origin (a source of a cluster), in no order. The
// Table must not change meanwhile.
func (t *Table[E]) Nodes(of origin.Origin) iter.Seq[*normal.Node] {
	return func(yield func(*normal.Node) bool) {
		for _, n := range t.index.nodes[of] {
			if !yield(n) {
				return
			}
		}
	}
}

// Namespace implements normal.Lookup. It returns the last good version of the Namespace, read-only. It returns nil if
// there is no such Namespace, or if no version of it was good.
func (t *Table[E]) Namespace(id object.ID) *normal.Namespace {
	return parsedOf[*normal.Namespace](t, id)
}

// Role implements normal.Lookup. It returns the last good version of the Role or ClusterRole, read-only. It returns nil
// if there is no such Role, or if no version of it was good.
func (t *Table[E]) Role(id object.ID) *normal.Role { return parsedOf[*normal.Role](t, id) }

// Mesh implements normal.Lookup. It returns the mesh configuration in effect, read-only and never nil: the last good
// version, or the defaults.
func (t *Table[E]) Mesh() *meshv1.MeshConfig { return t.index.config }

// Networks implements normal.Lookup. It returns the meshNetworks in effect, read-only and never nil. They are empty if
// no meshNetworks are configured.
func (t *Table[E]) Networks() *meshv1.MeshNetworks { return t.index.networks }

// Automatic implements normal.Lookup. It returns the automatic addresses of a ServiceEntry by host, read-only. It
// returns nil if the ServiceEntry has no automatic addresses. id is a normal.AutomaticID.
func (t *Table[E]) Automatic(id object.ID) map[string][]string {
	return parsedOf[map[string][]string](t, id)
}

// AutomaticAt implements normal.Lookup. It returns the normal.AutomaticID of the ServiceEntry to which an automatic
// address (normal.AutomaticAtID) is assigned. It returns the zero ID if the address is not assigned.
func (t *Table[E]) AutomaticAt(id object.ID) object.ID { return t.index.automaticAt[id] }

// Resolved implements normal.Lookup. It returns the addresses of a host name (normal.ResolvedID), read-only. It returns
// nil if the leader knows no address of the name.
func (t *Table[E]) Resolved(id object.ID) []string { return parsedOf[[]string](t, id) }

// Keys implements normal.Lookup. It returns the state of a key source (normal.KeysID), read-only. The result is zero if
// the leader has not fetched the keys yet.
func (t *Table[E]) Keys(id object.ID) normal.Keys { return parsedOf[normal.Keys](t, id) }
