package ingest

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// Records converts the objects in events to records, as the leader does, but without a store. It is for tools. It
// returns the records sorted by key. Records of Secrets lack their private keys. The problems are sorted by
// normal.CompareProblems, and include those between objects (store/analysis). Their number is not bounded. Both lists
// belong to the caller.
func Records(events []object.Event, options normal.Options) ([]model.Record, []object.Problem) {
	records, problems, _ := RecordsAndRefusals(events, options)
	return records, problems
}

// RecordsAndRefusals is Records with a third result. The map refused has the problems for which the validation webhook
// refuses a new or changed object, by object (normal.Result.Refused). The list problems contains these problems too, as
// warnings. The caller owns the map, which is not nil; its lists are read-only. The later events are applied once the
// objects of events are in effect, so that a valid version of an object stays in effect if its later one is invalid.
func RecordsAndRefusals(
	events []object.Event, options normal.Options, later ...object.Event,
) (records []model.Record, problems []object.Problem, refused map[object.ID][]object.Problem) {
	w := newInventory(Options{Normal: options})
	w.refused = map[object.ID][]object.Problem{}
	w.applyEvents(events)
	w.applyEvents(later)
	for key, d := range w.wanted.awaitingSeal {
		w.wanted.records[key] = d.Record
	}
	records = slices.SortedFunc(maps.Values(w.wanted.records), func(a, b model.Record) int { return a.Meta().Key.Compare(b.Meta().Key) })
	problems = append(slices.Collect(w.faults.Every()), w.crossCheck.check(&w.guard)...)
	slices.SortFunc(problems, normal.CompareProblems)
	return records, problems, w.refused
}
