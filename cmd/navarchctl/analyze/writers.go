package analyze

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// An object is rewritten again and again if it has at least manyWrites generations, and at least writesPerHour on
// average since its creation.
const (
	manyWrites    = 100
	writesPerHour = 12
)

// writers reports objects of which several field managers write one field of the spec, by metadata.managedFields. An
// API server records for each field the managers that agree on its value. A manager that changes the value becomes the
// only owner. Managers that take turns with different values are therefore found only by the rate of the writes.
func writers(w *world) {
	for of, all := range w.byKind {
		if !strings.HasSuffix(of.group, ".istio.io") && of.group != model.GroupGatewayAPI && of != (kind{"", "Service"}) {
			continue
		}
		for _, o := range all {
			if bytes.Contains(o.JSON, []byte(`"managedFields"`)) {
				w.writersOf(o)
			}
		}
	}
}

// writersOf reports the writers of one object.
func (w *world) writersOf(o *object.Object) {
	var head struct{ Metadata metav1.ObjectMeta }
	if decode(o, &head) != nil {
		return // the conversion to records reports objects that do not decode
	}
	owners, last := map[string][]string{}, map[string]time.Time{}
	for _, e := range head.Metadata.ManagedFields {
		var fields map[string]json.RawMessage
		if e.Subresource != "" || e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil || fields["f:spec"] == nil {
			continue
		}
		leaves(fields["f:spec"], "spec", func(path string) {
			if !slices.Contains(owners[path], e.Manager) {
				owners[path] = append(owners[path], e.Manager)
			}
		})
		if e.Time != nil && e.Time.After(last[e.Manager]) {
			last[e.Manager] = e.Time.Time
		} else if _, is := last[e.Manager]; !is {
			last[e.Manager] = time.Time{}
		}
	}
	for _, path := range sorted(owners) {
		if all := owners[path]; len(all) > 1 {
			w.found(problem.SeveralWriters, o.ID, path, "%s write it: each overwrites the other's next change, or is refused with a "+
				"conflict; leave the object to one of them", named(slices.Values(all), last))
			return
		}
	}
	if age := w.Now.Sub(o.Created); len(last) > 1 && o.Generation >= manyWrites && age > 0 &&
		float64(o.Generation) >= writesPerHour*age.Hours() {
		w.found(problem.SeveralWriters, o.ID, "spec", "it was changed %d times since %s, and %s write it: they may undo each other's "+
			"changes; leave the object to one of them", o.Generation, o.Created.UTC().Format(time.RFC3339), named(maps.Keys(last), last))
	}
}

// named lists field managers in order, each with the time of its last write.
func named(managers iter.Seq[string], last map[string]time.Time) string {
	var all []string
	for _, m := range slices.Sorted(managers) {
		text := fmt.Sprintf("%q", m)
		if at := last[m]; !at.IsZero() {
			text += " (" + at.UTC().Format(time.RFC3339) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, " and ")
}

// leaves calls found with the path of each field without fields of its own in a FieldsV1. Elements of lists are written
// as in the FieldsV1: k:{"name":"http"} becomes [{"name":"http"}]. The paths are in no particular order.
func leaves(raw json.RawMessage, path string, found func(path string)) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return
	}
	for key, value := range fields {
		mark, name, is := strings.Cut(key, ":")
		if !is {
			continue // ".": the parent itself
		}
		below := path + "." + name
		if mark != "f" {
			below = path + "[" + name + "]"
		}
		if string(value) == "{}" {
			found(below)
		} else {
			leaves(value, below, found)
		}
	}
}
