package ingest

import (
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/smallset"
	"navarch.io/navarch/store/weight"
)

// weights computes the weights of objects: estimates of the memory that they need in each replica (store/weight). The
// ledger compares them with the budgets of tenants. An object is offered if its newest version waits for the budget.
// Each offered object is measured once. Its weight is computed again only if a fact of the mesh on which it depends may
// have changed since.
type weights struct {
	index    *weight.Index // of the applied records
	most     weight.Weight // the budget of a tenant; a field of 0 is no bound
	offers   map[object.ID]*offer
	readers  map[weight.Read]*smallset.Set[object.ID] // offered objects whose weight depends on a fact
	stale    func(object.ID)                          // called with offered objects whose weight may be outdated
	measured uint64                                   // number of measured records
	weighed  uint64                                   // number of computed weights of records
}

// offer is one offered object: the loads of its records, and the facts on which its weight depends.
type offer struct {
	loads []weight.Load
	reads []weight.Read
	fixed weight.Weight // replaces the weight if it exceeds weights.most; zero: it does not replace the weight
}

func newWeights(most weight.Weight, stale func(object.ID)) *weights {
	w := &weights{most: most, offers: map[object.ID]*offer{}, readers: map[weight.Read]*smallset.Set[object.ID]{}, stale: stale}
	w.reindex(nil)
	return w
}

// reindex rebuilds the index from records. It sorts records so that services precede the rules for them (weight.Order).
// So the weights do not depend on the given order.
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

// measure returns the loads of records. The parameter private is the size of their private key or credentials, if the
// records lack it.
func (w *weights) measure(records []model.Record, private int) []weight.Load {
	loads := make([]weight.Load, len(records))
	for i, r := range records {
		if s, is := r.(*model.Secret); is {
			loads[i] = weight.MeasureSecret(s, private)
		} else {
			loads[i] = weight.Measure(r)
		}
	}
	w.measured += uint64(len(records))
	return loads
}

// sum returns the weight that measured records have in the mesh of the applied records. It calls the function read,
// if not nil, with each fact on which the weight depends.
func (w *weights) sum(loads []weight.Load, read func(weight.Read)) (sum weight.Weight) {
	for _, l := range loads {
		sum = sum.Plus(w.index.Weigh(l, read))
	}
	w.weighed += uint64(len(loads))
	return sum.Counted()
}

// offer stores the loads of an object that begins to wait for its budget, and returns its weight. One part of the
// weight does not depend on the mesh. If this part of a new object already exceeds the budget of a tenant, offer
// returns only this part. The object is then refused in any mesh, so the facts for the rest of its weight would only
// occupy memory.
func (w *weights) offer(id object.ID, loads []weight.Load, isNew bool) weight.Weight {
	o := &offer{}
	w.offers[id] = o
	if fixed := weight.Fixed(loads).Counted(); isNew && fixed.Beyond(w.most) {
		o.fixed = fixed
		return fixed
	}
	o.loads = loads
	return w.again(id)
}

// again returns the weight of an offered object in the present mesh. The object must be offered.
func (w *weights) again(id object.ID) weight.Weight {
	o := w.offers[id]
	if o.fixed != (weight.Weight{}) {
		return o.fixed
	}
	w.unread(id, o)
	return w.sum(o.loads, w.reading(id, o))
}

// standing returns the present weight of the applied records of an offered object. If a fact on which this weight
// depends changes, the offer becomes stale.
func (w *weights) standing(id object.ID, records []model.Record, private int) weight.Weight {
	return w.sum(w.measure(records, private), w.reading(id, w.offers[id]))
}

// reading returns a function that stores each fact on which an offer's weight depends.
func (w *weights) reading(id object.ID, o *offer) func(weight.Read) {
	return func(r weight.Read) {
		readers := w.readers[r]
		if readers == nil {
			readers = &smallset.Set[object.ID]{}
			w.readers[r] = readers
		}
		if !readers.Has(id) {
			readers.Add(id)
			o.reads = append(o.reads, r)
		}
	}
}

// forget ends an offer, if it exists.
func (w *weights) forget(id object.ID) {
	if o := w.offers[id]; o != nil {
		w.unread(id, o)
		delete(w.offers, id)
	}
}

// unread drops the facts on which an offer depends.
func (w *weights) unread(id object.ID, o *offer) {
	for _, r := range o.reads {
		if readers := w.readers[r]; readers != nil && readers.Remove(id) {
			delete(w.readers, r)
		}
	}
	o.reads = o.reads[:0]
}
