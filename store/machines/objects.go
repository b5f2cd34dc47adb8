package machines

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Origin returns the origin of the objects that Objects emits.
func Origin() origin.Origin { return origin.New("", origin.Machines) }

// Objects stores WorkloadEntries of machines as objects of a source, if the configuration comes from files alone. It
// cannot change entries that are in files: their health stays as in the file. One goroutine uses it, for one term. Only
// Emit must be set.
type Objects struct {
	Emit    func([]object.Event) // passes events to the ingester
	emitted map[Name]string      // JSON of each emitted entry
	of      map[Name]string      // service account of each emitted entry
	synced  bool
}

var _ WorkloadEntries = (*Objects)(nil)

// There implements WorkloadEntries. It returns the emitted entries, in no order, and a nil channel.
func (o *Objects) There() (all []WorkloadEntry, changed <-chan struct{}) {
	for name := range o.emitted {
		all = append(all, WorkloadEntry{name, o.of[name]})
	}
	return all, nil // only Want changes the entries
}

// Want implements WorkloadEntries. It emits the differences from the last call. The first call also emits Synced.
func (o *Objects) Want(all map[Name]Wanted) {
	if o.emitted == nil {
		o.emitted, o.of = map[Name]string{}, map[Name]string{}
	}
	var events []object.Event
	for _, name := range slices.SortedFunc(maps.Keys(all), compareNames) {
		w := all[name]
		if w.Gone || w.Machine == nil || w.Machine.Group == "" {
			continue
		}
		made, err := w.Machine.object()
		if err != nil { // unreachable: the spec was parsed from JSON
			continue
		}
		if o.emitted[name] != string(made.JSON) {
			o.emitted[name], o.of[name] = string(made.JSON), w.Machine.Account
			events = append(events, object.Event{Op: object.Put, ID: made.ID, Object: made, Location: made.Location})
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(o.emitted), compareNames) {
		if w, wanted := all[name]; !wanted || w.Gone {
			delete(o.emitted, name)
			delete(o.of, name)
			events = append(events, object.Event{Op: object.Delete, ID: idOf(name)})
		}
	}
	if !o.synced {
		o.synced = true
		events = append(events, object.Event{Op: object.Synced, ID: object.ID{Origin: Origin()}})
	}
	if len(events) > 0 {
		o.Emit(events)
	}
}

func idOf(name Name) object.ID {
	return object.ID{Origin: Origin(), Group: "networking.istio.io", Kind: "WorkloadEntry", Namespace: name.Namespace, Name: name.Name}
}

// object returns the WorkloadEntry of a machine. The object contains no times, so unchanged machines have equal
// content.
func (m *Machine) object() (*object.Object, error) {
	annotations := m.EntryAnnotations()
	whole := map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "spec": m.Spec,
		"metadata": map[string]any{"namespace": m.Namespace, "name": m.Name, "labels": m.Labels, "annotations": annotations}}
	if m.Checked && m.Health != nil {
		whole["status"] = map[string]any{"conditions": []any{map[string]any{"type": Healthy, "status": m.Health.Status(),
			"message": m.Health.Message}}}
	}
	raw, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("WorkloadEntry %s: %w", m.ID(), err)
	}
	return &object.Object{ID: idOf(m.ID()), Version: "v1", Labels: m.Labels, Annotations: annotations, JSON: raw, Location: "machine " +
		m.ID().String()}, nil
}

// EntryAnnotations returns the annotations of a WorkloadEntry that is made for the machine, as a new map. Annotations
// about the connection are not among them.
func (m *Machine) EntryAnnotations() map[string]string {
	all := maps.Clone(m.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	all[GroupAnnotation] = m.Group
	if m.Checked {
		all[HealthCheckAnnotation] = "true"
	}
	return all
}

// Healthy is the type of the condition about a machine's health, as in istiod.
const Healthy = "Healthy"

// Status returns the status of the condition: "True" or "False".
func (h *Health) Status() string {
	if h.Healthy {
		return "True"
	}
	return "False"
}
