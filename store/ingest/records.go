package ingest

import (
	"maps"
	"slices"
	"sync"

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
	w, records := convert(events, options, later...)
	return records, w.everyProblem(), w.refused
}

// RecordsFirst is RecordsAndRefusals for a caller that needs the problems later. The function problems returns them.
// Until it returns, the records must not change: they are compared with each other meanwhile.
func RecordsFirst(events []object.Event, options normal.Options,
) (records []model.Record, refused map[object.ID][]object.Problem, problems func() []object.Problem) {
	w, records := convert(events, options)
	found := make(chan []object.Problem, 1)
	go func() { found <- w.everyProblem() }()
	return records, w.refused, sync.OnceValue(func() []object.Problem { return <-found })
}

// convert returns an inventory of the objects, and its records sorted by key.
func convert(events []object.Event, options normal.Options, later ...object.Event) (*inventory, []model.Record) {
	return convertOn(manyObjects, events, options, later...)
}

// convertOn is convert, which uses all cores for at least so many objects; 0: one core.
func convertOn(parallel int, events []object.Event, options normal.Options, later ...object.Event) (*inventory, []model.Record) {
	w := newInventory(Options{Normal: options})
	w.refused, w.parallel = map[object.ID][]object.Problem{}, parallel
	w.objects.Expect(len(events))
	w.wanted.records, w.wanted.changed = make(map[model.Key]model.Record, len(events)), make(map[model.Key]bool, len(events))
	w.crossCheck.records = w.wanted.records
	w.applyEvents(events)
	w.applyEvents(later)
	for key, d := range w.wanted.awaitingSeal {
		w.wanted.records[key] = d.Record
	}
	return w, slices.SortedFunc(maps.Values(w.wanted.records), func(a, b model.Record) int { return a.Meta().Key.Compare(b.Meta().Key) })
}

// everyProblem returns the problems of single objects and between objects, sorted.
func (w *inventory) everyProblem() []object.Problem {
	w.crossCheck.check(&w.guard)
	problems := slices.AppendSeq(slices.Collect(w.faults.Every()), w.shown.of(ofAnalysis))
	slices.SortFunc(problems, normal.CompareProblems)
	return problems
}
