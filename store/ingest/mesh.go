package ingest

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/ingest/lookup"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// normaliseMesh makes the records of a mesh configuration: of its last good version, if it has one.
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
	if other := w.other(id); other != nil { // its records have the same keys
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

// keepMissingMesh reports whether an object that is removed is the mesh configuration in effect. Its last good version
// then stays in effect: its absence is a problem, and no other configuration.
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

// missMesh takes the object from the Node of a mesh configuration that stays in effect.
func (w *inventory) missMesh(n *node) {
	id := n.ID()
	w.objects.Vacate(n)
	n.Entry.spoiled, w.meshMissed = true, id
	w.faults.Set(id, []object.Problem{lookup.MeshMissing(id, "", "")})
}

// endMissingMesh ends the effect of a mesh configuration that is missing, since a source has one again.
func (w *inventory) endMissingMesh(id object.ID) {
	missed := w.meshMissed
	if missed == (object.ID{}) || !w.normal.IsMesh(id) {
		return
	}
	if w.meshMissed = (object.ID{}); missed != id { // the other source has it now
		w.remove(object.Event{Op: object.Delete, ID: missed})
	}
}

// recallMesh keeps the stored mesh configuration in effect where this leader has not read one: no source has emitted
// it, or key mesh is missing. Of the mesh's networks only gateways are stored.
func (w *inventory) recallMesh(stored *model.Mesh) {
	id := w.objects.MeshID()
	n := w.objects.Get(id)
	if stored == nil || n != nil && (n.Object() == nil || n.MeshOf() == nil || !n.MeshOf().Unsaid) {
		return
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
		restored.Problems = append(slices.Clip(restored.Problems), lookup.MeshMissing(id, "data.mesh", n.Object().Location))
		w.objects.Mark(id)
	}
	restored.Config, restored.Record, restored.StaleConfig = stored.Spec, stored, true
	w.objects.RestoreMesh(n, &restored)
	w.renew()
}
