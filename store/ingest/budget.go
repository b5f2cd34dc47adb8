package ingest

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/weight"
)

// counted reports whether an object is some tenant's configuration. Slices of endpoints and Pods are the controllers', and tokens are compared with
// ServiceAccounts; a Secret that is refused would be a certificate that ends. The system namespace and the root namespace, which configure the mesh, are
// the operators'.
func (w *inventory) counted(id object.ID) bool {
	switch id.Kind {
	case "EndpointSlice", "Pod", "ServiceAccount", "Secret":
		return false
	}
	return id.Namespace != "" && id.Namespace != w.normal.SystemNamespace && id.Namespace != w.objects.Mesh().GetRootNamespace()
}

// followRoot follows the mesh configuration to another root namespace: what waits in the new one applies, and what applies in the old one counts from
// now on.
func (w *inventory) followRoot() {
	from, to := w.root, w.objects.Mesh().GetRootNamespace()
	if w.root = to; w.ledger == nil || from == to {
		return
	}
	for id, n := range w.objects.All() {
		switch {
		case id.Namespace != from && id.Namespace != to:
		case w.counted(id):
			w.ledger.stand(id, created(n.Object()), exempt(id), w.chargeOf(n.Entry.records))
		default:
			w.ledger.drop(id)
			if n.Entry.waiting {
				w.applyOffered(id)
			}
		}
	}
}

// exempt are objects that are never refused: without them what they close would be open.
func exempt(id object.ID) bool {
	return normal.IsPolicy(id)
}

// chargeOf is what the records of one object cost beside those that apply by now.
func (w *inventory) chargeOf(records []model.Record) charge {
	if len(records) == 0 {
		return charge{}
	}
	return w.sizeOf(records).weighing(w.weights.sum(w.weights.measure(records), nil))
}

// sizeOf is what the records of one object cost whatever else there is.
func (w *inventory) sizeOf(records []model.Record) charge {
	c := charge{inObjects: 1}
	for _, r := range records {
		if w.ledger.budget.Bytes == 0 {
			break
		}
		if raw, err := model.Encode(r); err == nil {
			c[inBytes] += len(raw)
		} else {
			c[inBytes] += proto.Size(r.Body())
		}
	}
	return c
}

// weighing is a charge with the weights of the object.
func (c charge) weighing(w weight.Weight) charge {
	c[inExported], c[inOwn] = w.Exported, w.Own
	return c
}

// offerRecords offers the ledger what an object should be. What applies already weighs what it did then, though there is more by now that it multiplies.
func (w *inventory) offerRecords(n *node, records []model.Record) {
	id, c := n.ID(), charge{}
	same := func(a, b model.Record) bool { return a.Meta().Key == b.Meta().Key && a.Meta().Hash == b.Meta().Hash }
	w.weights.forget(id)
	if d := w.ledger.of(id); d != nil && d.stands != (charge{}) && slices.EqualFunc(records, n.Entry.records, same) {
		c = d.stands
	} else if len(records) > 0 {
		c = w.sizeOf(records).weighing(w.weights.offer(id, w.weights.measure(records)))
	}
	w.ledger.offer(id, created(n.Object()), exempt(id), c)
	n.Entry.offer(records, true)
}

// budgeted makes the ledger of the tenants' budgets.
func (w *inventory) budgeted(b Budget) {
	w.ledger = newLedger(b)
	w.weights = newWeights(w.ledger.reweigh)
	w.ledger.weigh = func(id object.ID, c *charge) { *c = c.weighing(w.weights.again(id)) }
	w.ledger.apply = w.applyOffered
}

// noteTenant takes from an event what tenants are made of, before objects are normalised.
func (w *inventory) noteTenant(e object.Event) {
	w.noteNamespace(e)
	if w.ledger == nil {
		return
	}
	switch {
	case e.Op == object.Delete:
		w.weights.forget(e.ID)
		w.ledger.drop(e.ID)
	case e.Op == object.Broken:
		if n := w.objects.Get(e.ID); n != nil {
			w.withdraw(n)
		}
	}
}

// offer gives what an object should be to the ledger, which decides in admit; false: there is none, or it has no say.
func (w *inventory) offer(n *node, records []model.Record, spoiled bool) bool {
	id := n.ID()
	if w.ledger == nil || !w.counted(id) {
		return false
	}
	if spoiled {
		w.withdraw(n)
		return false
	}
	w.offerRecords(n, records)
	return true
}

func (w *inventory) withdraw(n *node) {
	w.weights.forget(n.ID())
	w.ledger.withdraw(n.ID())
	n.Entry.offer(nil, false)
}

func created(o *object.Object) int64 {
	if o == nil || o.Created.IsZero() {
		return 0
	}
	return o.Created.Unix()
}

// applyBudgets applies what the budgets have room for.
func (w *inventory) applyBudgets() {
	if w.ledger == nil {
		return
	}
	w.ledger.admit()
}

// applyOffered applies what an object was offered as.
func (w *inventory) applyOffered(id object.ID) {
	n := w.objects.Get(id)
	records := n.Entry.few().offered
	w.weights.forget(id)
	n.Entry.closed = false
	n.Entry.offer(nil, false)
	w.setRecords(n, records, nil)
}

// rebase makes another ledger when a leader has read what is stored: that stands, and what is new or differs is offered
// in order. So what is refused does not depend on who leads, nor on what this process took before.
func (w *inventory) rebase(e Loaded) {
	if w.ledger == nil {
		return
	}
	stored := map[object.ID]charge{}
	for key := range e.Have {
		if key == model.MeshKey || key == model.MeshGatewaysKey {
			continue
		}
		if id := w.sourceOf(key); w.counted(id) {
			stored[id] = charge{1, stored[id][inBytes] + e.Bytes[key]}
		}
	}
	labels := w.ledger.labels
	version := w.ledger.version
	w.budgeted(w.ledger.budget)
	w.ledger.labels, w.ledger.version = labels, version+1
	w.root = w.objects.Mesh().GetRootNamespace()
	var applies []model.Record
	for _, n := range w.objects.All() {
		for _, r := range n.Entry.records {
			if weight.Order(r) != weight.Ignored {
				applies = append(applies, r)
			}
		}
	}
	w.weights.reindex(applies)
	same := func(records []model.Record) bool {
		return len(records) > 0 && !slices.ContainsFunc(records, func(r model.Record) bool { return e.Have[r.Meta().Key] != r.Meta().Hash })
	}
	for id, n := range w.objects.All() {
		if w.counted(id) {
			w.rebaseObject(n, stored[id], same)
		}
	}
	w.applyBudgets()
}

func (w *inventory) rebaseObject(n *node, stored charge, same func([]model.Record) bool) {
	id, o := n.ID(), &n.Entry
	at, free := created(n.Object()), exempt(id)
	newest := o.records
	if o.waiting {
		newest = o.few().offered
	}
	switch {
	case o.spoiled && len(o.records) > 0 && !o.closed:
		w.ledger.stand(id, at, free, w.chargeOf(o.records))
	case o.spoiled: // what is stored of it stays, see seldom.adopted
		w.ledger.stand(id, at, free, stored)
	case free || same(newest):
		if o.waiting {
			o.offer(nil, false)
			w.setRecords(n, newest, nil)
		}
		w.ledger.stand(id, at, free, w.chargeOf(newest))
	case len(newest) == 0 && stored == charge{}:
	default:
		if same(o.records) { // an older version than the newest is what applies
			w.ledger.stand(id, at, free, w.chargeOf(o.records))
		} else {
			w.ledger.stand(id, at, free, stored)
			w.setRecords(n, nil, nil)
		}
		w.offerRecords(n, newest)
	}
}

// budgetProblems is what the tenants' budgets refuse, and who is near them. It is asked for after every event, and looks at
// the tenants only where something of theirs changed.
func (w *inventory) budgetProblems() []object.Problem {
	if w.ledger != nil && w.budgets.version != w.ledger.version {
		w.budgets.version, w.budgets.problems = w.ledger.version, w.findBudgetProblems()
	}
	return w.budgets.problems
}

// findBudgetProblems looks at all tenants.
func (w *inventory) findBudgetProblems() (all []object.Problem) {
	for _, r := range w.ledger.refusals() {
		all = append(all, object.Problem{ID: r.id, Location: w.location(r.id), Code: problem.NotAllowed, Severity: problem.Error, Message: r.why})
	}
	for _, u := range w.ledger.above(warnAt) {
		id := object.ID{Kind: "Namespace", Name: u.tenant}
		if label, is := strings.CutPrefix(u.tenant, TenantLabel+"="); is {
			id = object.ID{Kind: "Tenant", Name: label}
		}
		all = append(all, object.Problem{ID: id, Code: problem.NotAllowed, Severity: problem.Warning, Message: w.ledger.warning(u)})
	}
	return all
}

// NamespaceOf is the namespace that a problem belongs to; empty: the mesh. Of a tenant of several namespaces it is
// TenantLabel=value.
func NamespaceOf(p object.Problem) string {
	switch {
	case p.ID.Group == "" && p.ID.Kind == "Namespace":
		return p.ID.Name
	case p.ID.Group == "" && p.ID.Kind == "Tenant":
		return TenantLabel + "=" + p.ID.Name
	}
	return p.ID.Namespace
}

// shownTenants bounds how many tenants metrics name.
const shownTenants = 100

// showTenants sets the metrics of tenants that use half of a budget or more, those that use most first, if something changed.
func (w *inventory) showTenants() {
	if w.ledger == nil || w.ledger.version == w.shown {
		return
	}
	w.shown = w.ledger.version
	obs.TenantObjects.Reset()
	obs.TenantBytes.Reset()
	large := w.ledger.above(50)
	slices.SortStableFunc(large, func(a, b usage) int {
		return cmp.Or(cmp.Compare(b.used[inBytes], a.used[inBytes]), cmp.Compare(b.used[inObjects], a.used[inObjects]))
	})
	for _, u := range large[:min(len(large), shownTenants)] {
		obs.TenantObjects.WithLabelValues(u.tenant).Set(float64(u.used[inObjects]))
		obs.TenantBytes.WithLabelValues(u.tenant).Set(float64(u.used[inBytes]))
	}
	waiting := 0
	for _, a := range w.ledger.accounts {
		waiting += len(a.waiting)
	}
	obs.TenantRefused.Set(float64(waiting))
}
