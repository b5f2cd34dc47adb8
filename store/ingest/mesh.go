package ingest

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/ingest/lookup"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// normaliseMesh makes the records of the last good version of a mesh configuration. Without a good version it only
// reports the problems.
func (w *inventory) normaliseMesh(n *node) {
	id, e, m := n.ID(), &n.Entry, n.MeshOf()
	e.spoiled = m.StaleConfig || m.StaleNetworks
	if m.Record == nil {
		w.faults.Set(id, m.Problems)
		return
	}
	gateways, refs, wrong := w.objects.Gateways(n.Object())
	w.objects.SetRefs(n, refs, false)
	e.spoiled = e.spoiled || len(wrong) > 0
	w.faults.Set(id, slices.Concat(m.Problems, wrong))
	if other := w.other(id); other != nil { // the records of both sources have the same keys
		w.setRecords(other, nil, nil)
	}
	records := []model.Record{m.Record}
	if gateways != nil {
		records = append(records, gateways)
	}
	stored := m.StaleNetworks && slices.Contains(e.few().adopted, model.MeshGatewaysKey)
	w.setRecords(n, records, nil)
	if stored { // the stored gateways stay until the networks can be read
		e.setAdopted([]model.Key{model.MeshGatewaysKey})
		delete(w.wanted.changed, model.MeshGatewaysKey)
	}
}

// keepMissingMesh reports whether a removed object is the mesh configuration in effect, and no other source has a mesh
// configuration. If so, its last good version stays in effect, and the missing object is reported.
func (w *inventory) keepMissingMesh(id object.ID) bool {
	n := w.objects.Get(id)
	if n == nil || n.MeshOf() == nil || n.MeshOf().Record == nil || id != w.objects.MeshID() {
		return false
	}
	if other := w.other(id); other != nil && other.Object() != nil {
		return false
	}
	w.missMesh(n)
	return true
}

// missMesh removes the object from the Node of a mesh configuration that stays in effect, and reports the missing
// object.
func (w *inventory) missMesh(n *node) {
	id := n.ID()
	w.objects.Vacate(n)
	n.Entry.spoiled, w.meshMissed = true, id
	w.faults.Set(id, []object.Problem{lookup.MeshMissing(id, "", "")})
}

// endMissingMesh ends the retention of a missing mesh configuration when a source emits a mesh configuration. The
// parameter id identifies the emitted one. If it comes from another source, the retained configuration is removed.
func (w *inventory) endMissingMesh(id object.ID) {
	missed := w.meshMissed
	if missed == (object.ID{}) || !w.normal.IsMesh(id) {
		return
	}
	if w.meshMissed = (object.ID{}); missed != id { // the object of the other source applies now
		w.remove(object.Event{Op: object.Delete, ID: missed})
	}
}

// recallMesh puts the stored mesh configuration into effect if this leader has not read a good one. Either no source
// has emitted a mesh configuration, or the emitted one is invalid or lacks the key "mesh". State.compare passes the
// mesh configuration that it has loaded from the store, or nil. MeshNetworks are not restored, since only their
// gateways are stored.
func (w *inventory) recallMesh(stored *model.Mesh) {
	id := w.objects.MeshID()
	n := w.objects.Get(id)
	if stored == nil {
		return
	}
	if n != nil {
		if m := n.MeshOf(); m == nil || m.Record != nil && (n.Object() == nil || !m.Unsaid) {
			return
		}
	}
	if n != nil && proto.Equal(stored.Spec, w.objects.Mesh()) {
		return
	}
	restored := lookup.Mesh{StaleNetworks: true}
	if n == nil {
		n = w.objects.Add(id)
		w.missMesh(n)
		w.setRecords(n, []model.Record{stored}, nil)
	} else {
		restored = *n.MeshOf()
		if restored.Record != nil { // the key "mesh" is missing; an invalid configuration already has a problem
			restored.Problems = append(slices.Clip(restored.Problems), lookup.MeshMissing(id, "data.mesh", n.Object().Location))
		}
		w.objects.Mark(id)
	}
	restored.Config, restored.Record, restored.StaleConfig = stored.Spec, stored, true
	w.objects.RestoreMesh(n, &restored)
	w.renew()
}
