package ingest

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// Records turns events into records without a store, through the same code that the leader runs: ordered by key, with
// all problems, those between objects included. Secrets come without their private keys.
func Records(events []object.Event, options normal.Options) ([]model.Record, []object.Problem) {
	w := newInventory(Options{Normal: options})
	w.take(events)
	for key, d := range w.wanted.awaitingSeal {
		w.wanted.records[key] = d.Record
	}
	records := slices.SortedFunc(maps.Values(w.wanted.records), func(a, b model.Record) int { return a.Meta().Key.Compare(b.Meta().Key) })
	problems := append(slices.Collect(w.faults.Every()), w.crossCheck.check(&w.guard)...)
	slices.SortFunc(problems, normal.CompareProblems)
	return records, problems
}
