package ingest

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// putMesh takes a mesh configuration; a part that cannot be read leaves what was good of it.
func (w *inventory) putMesh(e *entry, touched map[object.ID]bool) {
	if missed := w.meshMissed; missed != (object.ID{}) {
		if w.meshMissed = (object.ID{}); missed != e.object.ID { // the other source has it now
			w.remove(object.Event{Op: object.Delete, ID: missed}, touched)
		}
	}
	if w.yields(e.object.ID, e) {
		return
	}
	w.meshID = e.object.ID
	if _, other := w.other(w.meshID); other != nil {
		w.setRecords(other, nil, nil)
	}
	parsed := w.normal.ParseMesh(e.object)
	if w.meshUnsaid = parsed.Unsaid; parsed.Unsaid && lastMesh(e) != nil {
		parsed.Config, parsed.Problems = nil, append(parsed.Problems, w.meshMissing("data.mesh", e.object.Location))
	}
	e.spoiled = parsed.Config == nil || parsed.Networks == nil
	w.setProblems(e.object.ID, e, parsed.Problems)
	if parsed.Networks != nil {
		w.setNetworks(parsed.Networks, touched)
	}
	mesh := w.meshRecord(e, parsed, touched)
	if mesh == nil {
		return
	}
	records := []model.Record{mesh}
	gateways, refs, err := w.normal.MeshGateways(w.networks, w.Resolved)
	w.setRefs(e, refs)
	if err != nil {
		w.unfitMesh(e, "data.meshNetworks", err)
	} else if gateways != nil {
		records = append(records, gateways)
	}
	stored := parsed.Networks == nil && slices.Contains(e.few().adopted, model.MeshGatewaysKey)
	w.setRecords(e, records, nil)
	if stored { // they stand until the networks can be read
		e.setAdopted([]model.Key{model.MeshGatewaysKey})
		delete(w.changed, model.MeshGatewaysKey)
	}
}

// meshRecord is the record of a mesh configuration, or of the last good one; nil: none is known.
func (w *inventory) meshRecord(e *entry, parsed normal.Mesh, touched map[object.ID]bool) model.Record {
	if parsed.Config != nil {
		record, err := normal.MeshRecord(parsed.Config)
		if err == nil {
			w.setMesh(parsed.Config, touched)
			return record
		}
		w.unfitMesh(e, "data.mesh", err)
	}
	return lastMesh(e)
}

// lastMesh is the record of the last good mesh configuration; nil: none is known.
func lastMesh(e *entry) model.Record {
	for _, r := range e.records {
		if r.Meta().Key == model.MeshKey {
			return r
		}
	}
	return nil
}

// meshMissing is the problem of a mesh configuration that is not there, or of one without a field.
func (w *inventory) meshMissing(field, location string) object.Problem {
	return object.Problem{ID: w.meshID, Location: location, Field: field, Code: problem.Held, Severity: problem.Error,
		Message: "is missing: the last good mesh configuration stays in effect. Put it back, or, for a mesh with all defaults, one with `mesh: \"{}\"`"}
}

// meshStands says whether an object that is removed is the mesh configuration, whose last good form stays in effect: its absence is a problem, and no other configuration.
func (w *inventory) meshStands(id object.ID) bool {
	have := w.objects[id]
	if !w.normal.IsMesh(id) || id != w.meshID || have == nil || lastMesh(have) == nil {
		return false
	}
	if _, other := w.other(id); other != nil && other.object != nil {
		return false
	}
	w.missMesh(id, have)
	return true
}

func (w *inventory) missMesh(id object.ID, e *entry) {
	e.setObject(nil)
	e.name(id)
	e.spoiled, w.meshMissed = true, id
	w.setProblems(id, e, []object.Problem{w.meshMissing("", "")})
}

// recallMesh has the mesh configuration that is stored stay in effect, where this leader has not read one: no source has emitted it, or key mesh is missing. Networks
// of meshNetworks are not stored, but for their gateways.
func (w *inventory) recallMesh(stored *model.Mesh) {
	e := w.objects[w.meshID]
	if stored == nil || e != nil && (!w.meshUnsaid || proto.Equal(stored.Spec, w.mesh)) {
		return
	}
	touched := map[object.ID]bool{}
	if e == nil {
		e = w.entryOf(w.meshID)
		w.missMesh(w.meshID, e)
	} else {
		e.spoiled = true
		w.setProblems(w.meshID, e, append(slices.Clip(e.problems), w.meshMissing("data.mesh", e.object.Location)))
	}
	rest := slices.DeleteFunc(slices.Clone(e.records), func(r model.Record) bool { return r.Meta().Key == model.MeshKey })
	w.setRecords(e, append([]model.Record{stored}, rest...), nil)
	w.setMesh(stored.Spec, touched)
	for _, id := range slices.SortedFunc(maps.Keys(touched), object.ID.Compare) {
		w.normalise(id)
	}
}

// unfitMesh reports a part of a mesh configuration of which no record can be made.
func (w *inventory) unfitMesh(e *entry, field string, err error) {
	e.spoiled = true
	w.setProblems(e.object.ID, e, append(slices.Clip(e.problems), object.Problem{ID: e.object.ID, Location: e.object.Location, Field: field,
		Code: problem.Invalid, Severity: problem.Error, Message: err.Error()}))
}

func (w *inventory) setMesh(config *meshv1.MeshConfig, touched map[object.ID]bool) {
	if proto.Equal(w.mesh, config) {
		return
	}
	w.mesh = config
	for id, e := range w.objects {
		if e.mesh {
			touched[id] = true
		}
	}
}

func (w *inventory) setNetworks(networks *meshv1.MeshNetworks, touched map[object.ID]bool) {
	if proto.Equal(w.networks, networks) {
		return
	}
	w.networks = networks
	for id := range w.objects {
		switch id.Kind {
		case "EndpointSlice", "Pod", "Service":
			touched[id] = true
		}
	}
}
