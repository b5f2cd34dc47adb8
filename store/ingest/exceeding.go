package ingest

import (
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/weight"
)

// Proposed is a version of an object that is not applied yet. Without records it proposes the deletion of the object.
type Proposed struct {
	ID      object.ID
	Records []model.Record
}

// Exceeding returns a problem for each proposed version that the leader would refuse because of the budget of its
// tenant. The result is nil if there is no such version, or if b is the zero Budget. The problems are ordered by
// tenant. Those of one tenant are in the order in which the leader would try to admit the versions. All stored records
// count as admitted. The parameters system and root are namespaces that no budget bounds. The function tenant returns
// the tenant of a namespace (isolation.TenantOf). Exceeding is pure and does not change its arguments.
func Exceeding(b Budget, proposed []Proposed, stored []model.Record, system, root string, tenant func(namespace string) string,
) []object.Problem {
	concerned := map[string]bool{}
	for _, p := range proposed {
		if countedIn(p.ID, system, root) {
			concerned[tenant(p.ID.Namespace)] = true
		}
	}
	if b == (Budget{}) || len(concerned) == 0 {
		return nil
	}
	applies := map[object.ID][]model.Record{}
	var weighed []model.Record
	for _, r := range stored {
		id := normal.SourceObject(r.Meta().Key)
		if countedIn(id, system, root) && concerned[tenant(id.Namespace)] {
			applies[id] = append(applies[id], r)
		}
		if weight.Order(r) != weight.Ignored {
			weighed = append(weighed, r)
		}
	}
	budgets := newBudgets(b, func(id object.ID) ([]model.Record, int) { return applies[id], 0 }, nil)
	budgets.weights.reindex(weighed)
	label := func(id object.ID) {
		if value, is := strings.CutPrefix(tenant(id.Namespace), TenantLabel+"="); is {
			budgets.ledger.label(id.Namespace, value)
		}
	}
	for id, records := range applies {
		label(id)
		budgets.ledger.addApplied(id, records[0].Meta().Created, exempt(id), budgets.chargeOf(records, 0))
	}
	for _, p := range proposed {
		if countedIn(p.ID, system, root) {
			label(p.ID)
			budgets.propose(p)
		}
	}
	budgets.ledger.admit()
	var all []object.Problem
	for _, r := range budgets.ledger.refusals() {
		all = append(all, object.Problem{ID: r.id, Code: problem.NotAllowed, Severity: problem.Error, Message: r.why})
	}
	return all
}

// propose offers a version to the ledger. If the version has no records, it removes the object from the ledger.
func (b *budgets) propose(p Proposed) {
	if len(p.Records) == 0 {
		b.ledger.drop(p.ID)
		return
	}
	c := b.sizeOf(p.Records).weighing(b.weights.offer(p.ID, b.weights.measure(p.Records, 0), b.uncharged(p.ID)))
	b.ledger.offer(p.ID, p.Records[0].Meta().Created, exempt(p.ID), c)
}
