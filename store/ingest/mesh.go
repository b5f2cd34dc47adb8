package ingest

import (
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
	if w.yields(e.object.ID, e) {
		return
	}
	w.meshID = e.object.ID
	if _, other := w.other(w.meshID); other != nil {
		w.setRecords(other, nil, nil)
	}
	parsed := w.normal.ParseMesh(e.object)
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
	for _, r := range e.records {
		if r.Meta().Key == model.MeshKey {
			return r
		}
	}
	return nil
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
