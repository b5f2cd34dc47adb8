package ingest

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/analysis"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// noteEdits keeps what the analysis has of records that are replaced.
func (w *inventory) noteEdits(of ...[]model.Record) {
	if w.analysis == nil { // it begins from scratch
		w.unchecked = true
		return
	}
	for _, records := range of {
		for _, r := range records {
			key := r.Meta().Key
			if _, noted := w.edited[key]; noted || !analysis.Reads(key.Kind) {
				continue
			}
			w.edited[key] = w.want[key]
			w.unchecked = true
		}
	}
}

// check is what is wrong between objects, sorted.
func (w *inventory) check() []object.Problem {
	w.unchecked = false
	found := w.between()
	if len(found) == 0 {
		return nil
	}
	found = slices.Clone(found)
	for i, p := range found {
		if e := w.objects[p.ID]; e != nil && e.object != nil {
			found[i].Location = e.object.Location
		}
	}
	slices.SortFunc(found, normal.CompareProblems)
	return found
}

// between has the analysis take what has changed. Where that panics, no object can be named for it, and the next time the analysis begins from scratch.
func (w *inventory) between() (found []object.Problem) {
	a := w.analysis
	w.analysis = nil
	problems := w.guarded(&object.Object{}, func() {
		if a == nil {
			a = analysis.Of(maps.Values(w.want))
		} else {
			a.Step(w.edits())
		}
		found = a.Problems()
	})
	w.edited = map[model.Key]model.Record{}
	if problems != nil {
		problems[0].Message = "a fault of this build: objects are not checked against each other; the log says why"
		return problems
	}
	w.analysis = a
	return found
}

// edits are the records that differ from what the analysis has.
func (w *inventory) edits() (all []analysis.Edit) {
	for key, old := range w.edited {
		if now := w.want[key]; !same(old, now) {
			all = append(all, analysis.Edit{Old: old, New: now})
		}
	}
	return all
}

func same(a, b model.Record) bool {
	return a == b || a != nil && b != nil && a.Meta().Hash == b.Meta().Hash
}
