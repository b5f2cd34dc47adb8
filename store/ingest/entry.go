package ingest

import (
	"slices"

	"navarch.io/navarch/store/ingest/lookup"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// node is one object, with the inventory's entry.
type node = lookup.Node[entry]

// entry is the inventory's data of one object. There are hundreds of thousands of entries, most of them for Pods. To
// save memory, fields that few objects need are in seldom.
type entry struct {
	records []model.Record // records of the last good version
	seldom  *seldom        // nil if all of its fields are empty
	closed  bool           // records replace an unreadable policy: the workloads that it selects refuse all requests
	spoiled bool           // the present version cannot be used; records are of an earlier version
	waiting bool           // the tenant's budget has no room for seldom.offered
	dropped bool           // seldom.offered was dropped, and is computed again if needed (inventory.newest)
}

// seldom contains the fields that few objects need.
type seldom struct {
	private model.PrivateKey // private key of the object's record, which is written once the key is sealed
	adopted []model.Key      // keys of stored records of an unknown version; they stay while entry.spoiled or entry.waiting is set
	parsing []object.Problem // problems of parsing, for kinds that other objects look up
	offered []model.Record   // records of the newest version, see entry.waiting and entry.dropped
	sealing model.PrivateKey // private key of offered
}

// empty reports whether all fields are empty.
func (s *seldom) empty() bool {
	return len(s.private) == 0 && len(s.adopted) == 0 && len(s.parsing) == 0 && len(s.offered) == 0 &&
		len(s.sealing) == 0
}

// few returns a copy of the seldom fields.
func (e *entry) few() seldom {
	if e.seldom == nil {
		return seldom{}
	}
	return *e.seldom
}

// setFew replaces the seldom fields.
func (e *entry) setFew(s seldom) {
	switch {
	case s.empty():
		e.seldom = nil
	case e.seldom == nil:
		e.seldom = &s
	default:
		*e.seldom = s
	}
}

// setParsing stores the problems of parsing.
func (e *entry) setParsing(problems []object.Problem) {
	if e.seldom != nil || len(problems) > 0 {
		few := e.few()
		few.parsing = problems
		e.setFew(few)
	}
}

// setAdopted stores the keys of stored records that stay while entry.spoiled or entry.waiting is set.
func (e *entry) setAdopted(keys []model.Key) {
	if e.seldom != nil || len(keys) > 0 {
		few := e.few()
		few.adopted = keys
		e.setFew(few)
	}
}

// setRecords stores the records of the last good version, with their private key if they have one. Adopted records are
// forgotten.
func (e *entry) setRecords(records []model.Record, private model.PrivateKey) {
	if e.records = records; e.seldom != nil || len(private) > 0 {
		few := e.few()
		few.private, few.adopted = private, nil
		e.setFew(few)
	}
}

// offer stores the records that wait for the tenant's budget, with their private key if they have one. If records is
// nil and waiting is false, it ends an earlier offer.
func (e *entry) offer(records []model.Record, private model.PrivateKey, waiting bool) {
	e.dropped = false
	if e.waiting = waiting; e.seldom != nil || len(records) > 0 {
		few := e.few()
		few.offered, few.sealing = records, private
		e.setFew(few)
	}
}

// shareEndpoints replaces each endpoint of an EndpointSlice by the equal endpoint in the Workload record of its Pod, if
// there is one. Memory then contains the endpoint once. Most endpoints of an EndpointSlice have an equal endpoint. No
// other goroutine may know the records yet.
func shareEndpoints(n *node, records []model.Record) {
	var pods map[string]*model.Endpoint
	for _, r := range records {
		slice, is := r.(*model.Endpoints)
		if !is {
			return
		}
		if pods == nil {
			pods = endpointsOfPods(n)
		}
		for i, e := range slice.Spec.GetEndpoints() {
			if own := pods[e.GetAddress()]; own != nil && model.SameEndpoint(own, e) {
				slice.Spec.Endpoints[i] = own
			}
		}
	}
}

// endpointsOfPods maps addresses to the endpoints of the Pods that an object looked up by name.
func endpointsOfPods(n *node) map[string]*model.Endpoint {
	all := map[string]*model.Endpoint{}
	for pod := range n.Pods() {
		if len(pod.Entry.records) == 0 {
			continue
		}
		if w, is := pod.Entry.records[0].(*model.Workload); is {
			all[w.Spec.GetEndpoint().GetAddress()] = w.Spec.GetEndpoint()
		}
	}
	return all
}

// stays reports whether a result equals the applied version. For objects with seldom fields it is always false.
func (e *entry) stays(result normal.Result) bool {
	return !e.closed && !e.waiting && e.seldom == nil && len(result.Private) == 0 && len(e.records) > 0 &&
		slices.EqualFunc(e.records, result.Records, func(a, b model.Record) bool {
			return same(a, b) && a.Meta().Key == b.Meta().Key && a.Meta().Created == b.Meta().Created
		})
}
