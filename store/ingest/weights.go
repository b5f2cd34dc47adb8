package ingest

import (
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/smallset"
	"navarch.io/navarch/store/weight"
)

// weights weighs objects for the ledger. Each offered object is measured once, when it comes; it is weighed again only
// if a fact about the mesh that its weight depends on may be another since.
type weights struct {
	index    *weight.Index // of the records that apply
	offers   map[object.ID]*offer
	readers  map[weight.Read]*smallset.Set[object.ID] // of offers
	stale    func(object.ID)                          // is called with offers that are to be weighed again
	measured uint64                                   // records
	weighed  uint64
}

// offer is one offered object: what its records multiply, and what their weight depends on.
type offer struct {
	loads []weight.Load
	reads []weight.Read
}

func newWeights(stale func(object.ID)) *weights {
	w := &weights{offers: map[object.ID]*offer{}, readers: map[weight.Read]*smallset.Set[object.ID]{}, stale: stale}
	w.reindex(nil)
	return w
}

// reindex begins the index again with records, in the order that counts each rule with all that it is for, in whatever
// order they came.
func (w *weights) reindex(records []model.Record) {
	w.index = weight.NewIndex()
	slices.SortStableFunc(records, func(a, b model.Record) int { return weight.Order(a) - weight.Order(b) })
	w.index.Replace(nil, records)
	w.index.Changed = func(r weight.Read) {
		readers := w.readers[r]
		if readers == nil {
			return
		}
		for id := range readers.All() {
			w.stale(id)
		}
	}
}

// measure reads records for their weights.
func (w *weights) measure(records []model.Record) []weight.Load {
	loads := make([]weight.Load, len(records))
	for i, r := range records {
		loads[i] = weight.Measure(r)
	}
	w.measured += uint64(len(records))
	return loads
}

// sum weighs records that were measured beside those that apply by now. It calls read with what the weights depend on.
func (w *weights) sum(loads []weight.Load, read func(weight.Read)) (sum weight.Weight) {
	for _, l := range loads {
		sum = sum.Plus(w.index.Weigh(l, read))
	}
	w.weighed += uint64(len(loads))
	return sum.Counted()
}

// offer weighs an object that waits for room from now on, and did not before.
func (w *weights) offer(id object.ID, loads []weight.Load) weight.Weight {
	w.offers[id] = &offer{loads: loads}
	return w.again(id)
}

// again weighs an offered object again.
func (w *weights) again(id object.ID) weight.Weight {
	o := w.offers[id]
	w.unread(id, o)
	return w.sum(o.loads, w.reading(id, o))
}

// standing weighs the records of an offered object that apply, beside those that apply by now. When that may be another
// weight, the offer is stale.
func (w *weights) standing(id object.ID, records []model.Record) weight.Weight {
	return w.sum(w.measure(records), w.reading(id, w.offers[id]))
}

// reading notes what the weight of an offer depends on.
func (w *weights) reading(id object.ID, o *offer) func(weight.Read) {
	return func(r weight.Read) {
		readers := w.readers[r]
		if readers == nil {
			readers = &smallset.Set[object.ID]{}
			w.readers[r] = readers
		}
		readers.Add(id)
		o.reads = append(o.reads, r)
	}
}

// forget ends an offer.
func (w *weights) forget(id object.ID) {
	if o := w.offers[id]; o != nil {
		w.unread(id, o)
		delete(w.offers, id)
	}
}

func (w *weights) unread(id object.ID, o *offer) {
	for _, r := range o.reads {
		if readers := w.readers[r]; readers != nil && readers.Remove(id) {
			delete(w.readers, r)
		}
	}
	o.reads = o.reads[:0]
}
