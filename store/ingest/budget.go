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

// budgets is the tenants' budgets: the ledger, the weights of offered objects, and the problems and metrics of tenants.
// The inventory offers it each normalised object of a tenant (offer), and has it decide once per group of events
// (applyBudgets). applies returns the records of an object that apply, and apply is called with each object that the
// ledger accepts.
type budgets struct {
	ledger  *ledger
	weights *weights
	shown   uint64 // version of the ledger that metrics show
	version uint64 // version of the ledger that found is of
	found   []object.Problem
}

func newBudgets(b Budget, applies func(object.ID) []model.Record, apply func(object.ID)) *budgets {
	l := newLedger(b)
	out := &budgets{ledger: l, weights: newWeights(l.reweigh)}
	l.weigh = func(id object.ID, c *charge) { *c = c.weighing(out.weights.again(id)) }
	l.today = func(id object.ID) charge { return charge{inObjects: 1}.weighing(out.weights.standing(id, applies(id))) }
	l.apply = apply
	return out
}

// counted reports whether an object is some tenant's configuration. Slices of endpoints and Pods are the controllers',
// and tokens are compared with ServiceAccounts; a Secret that is refused would be a certificate that ends. The system
// namespace and the root namespace, which configure the mesh, are the operators'.
func (w *inventory) counted(id object.ID) bool {
	switch id.Kind {
	case "EndpointSlice", "Pod", "ServiceAccount", "Secret":
		return false
	}
	return id.Namespace != "" && id.Namespace != w.normal.SystemNamespace && id.Namespace != w.objects.Mesh().GetRootNamespace()
}

// followRoot follows the mesh configuration to another root namespace: what waits in the new one applies, and what
// applies in the old one counts from now on.
func (w *inventory) followRoot() {
	from, to := w.root, w.objects.Mesh().GetRootNamespace()
	if w.root = to; w.budgets == nil || from == to {
		return
	}
	for id, n := range w.objects.All() {
		switch {
		case id.Namespace != from && id.Namespace != to:
		case w.counted(id):
			w.budgets.ledger.stand(id, created(n.Object()), exempt(id), w.budgets.chargeOf(n.Entry.records))
		default:
			w.budgets.ledger.drop(id)
			if n.Entry.waiting {
				w.applyOffered(id)
			}
		}
	}
}

// exempt reports whether an object is never refused: without a policy, the workloads that it closes would be open.
func exempt(id object.ID) bool {
	return normal.IsPolicy(id)
}

// chargeOf returns the charge of an object's records beside those that apply by now.
func (b *budgets) chargeOf(records []model.Record) charge {
	if len(records) == 0 {
		return charge{}
	}
	return b.sizeOf(records).weighing(b.weights.sum(b.weights.measure(records), nil))
}

// sizeOf returns the part of the charge of an object's records that depends on them alone.
func (b *budgets) sizeOf(records []model.Record) charge {
	c := charge{inObjects: 1}
	for _, r := range records {
		if b.ledger.budget.Bytes == 0 {
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

// weighing returns a charge with the weights of the object.
func (c charge) weighing(w weight.Weight) charge {
	c[inExported], c[inOwn] = w.Exported, w.Own
	return c
}

// offerRecords offers the newest version of an object to the ledger. Records that apply already keep their weight,
// though there may be more by now that they multiply.
func (w *inventory) offerRecords(n *node, records []model.Record) {
	b, id, c := w.budgets, n.ID(), charge{}
	same := func(a, b model.Record) bool { return a.Meta().Key == b.Meta().Key && a.Meta().Hash == b.Meta().Hash }
	b.weights.forget(id)
	if d := b.ledger.of(id); d != nil && d.stands != (charge{}) && slices.EqualFunc(records, n.Entry.records, same) {
		c = d.stands
	} else if len(records) > 0 {
		c = b.sizeOf(records).weighing(b.weights.offer(id, b.weights.measure(records)))
	}
	b.ledger.offer(id, created(n.Object()), exempt(id), c)
	n.Entry.offer(records, true)
}

// noteTenant notes labels of namespaces and objects that go, before objects are normalised.
func (w *inventory) noteTenant(e object.Event) {
	w.noteNamespace(e)
	if w.budgets == nil {
		return
	}
	switch {
	case e.Op == object.Delete:
		w.budgets.weights.forget(e.ID)
		w.budgets.ledger.drop(e.ID)
	case e.Op == object.Broken:
		if n := w.objects.Get(e.ID); n != nil {
			w.withdraw(n)
		}
	}
}

// offer offers the newest version of an object to the ledger, which decides in admit. False: no budget bounds the
// object.
func (w *inventory) offer(n *node, records []model.Record, spoiled bool) bool {
	id := n.ID()
	if w.budgets == nil || !w.counted(id) {
		return false
	}
	if spoiled {
		w.withdraw(n)
		return false
	}
	w.offerRecords(n, records)
	return true
}

// withdraw ends the offer of an object.
func (w *inventory) withdraw(n *node) {
	w.budgets.weights.forget(n.ID())
	w.budgets.ledger.withdraw(n.ID())
	n.Entry.offer(nil, false)
}

// created returns the creation time of an object in Unix seconds; 0: unknown.
func created(o *object.Object) int64 {
	if o == nil || o.Created.IsZero() {
		return 0
	}
	return o.Created.Unix()
}

// applyBudgets applies the offered objects that the budgets have room for.
func (w *inventory) applyBudgets() {
	if w.budgets == nil {
		return
	}
	w.budgets.ledger.admit()
}

// applies returns the records of an object that apply.
func (w *inventory) applies(id object.ID) []model.Record { return w.objects.Get(id).Entry.records }

// applyOffered applies the offered version of an object.
func (w *inventory) applyOffered(id object.ID) {
	n := w.objects.Get(id)
	records := n.Entry.few().offered
	w.budgets.weights.forget(id)
	n.Entry.closed = false
	n.Entry.offer(nil, false)
	w.setRecords(n, records, nil)
}

// rebase makes the ledger again once a leader has read the store. Stored objects count as accepted, and new or
// different ones are offered in order. So refusals do not depend on which process leads, nor on what it took before.
func (w *inventory) rebase(e Loaded) {
	if w.budgets == nil {
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
	before := w.budgets.ledger
	w.budgets = newBudgets(before.budget, w.applies, w.applyOffered)
	w.budgets.ledger.labels, w.budgets.ledger.version = before.labels, before.version+1
	w.root = w.objects.Mesh().GetRootNamespace()
	var applies []model.Record
	for _, n := range w.objects.All() {
		for _, r := range n.Entry.records {
			if weight.Order(r) != weight.Ignored {
				applies = append(applies, r)
			}
		}
	}
	w.budgets.weights.reindex(applies)
	same := func(records []model.Record) bool {
		return len(records) > 0 && !slices.ContainsFunc(records, func(r model.Record) bool { return e.Have[r.Meta().Key] != r.Meta().Hash })
	}
	for id, n := range w.objects.All() {
		if w.counted(id) {
			w.rebaseObject(n, stored[id], same)
		}
	}
	w.renew()
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
		w.budgets.ledger.stand(id, at, free, w.budgets.chargeOf(o.records))
	case o.spoiled: // what is stored of it stays, see seldom.adopted
		w.budgets.ledger.stand(id, at, free, stored)
	case free || same(newest):
		if o.waiting {
			o.offer(nil, false)
			w.setRecords(n, newest, nil)
		}
		w.budgets.ledger.stand(id, at, free, w.budgets.chargeOf(newest))
	case len(newest) == 0 && stored == charge{}:
	default:
		if same(o.records) { // an older version than the newest is what applies
			w.budgets.ledger.stand(id, at, free, w.budgets.chargeOf(o.records))
		} else {
			w.budgets.ledger.stand(id, at, free, stored)
			w.setRecords(n, nil, nil)
		}
		w.offerRecords(n, newest)
	}
}

// problems returns the refusals of the budgets, and the tenants near their limits. It is called after every event, and
// walks over the tenants only if the ledger has changed. A nil budgets has no problems.
func (b *budgets) problems(locate func(object.ID) string) []object.Problem {
	if b == nil {
		return nil
	}
	if b.version != b.ledger.version {
		b.version, b.found = b.ledger.version, b.findProblems(locate)
	}
	return b.found
}

func (b *budgets) findProblems(locate func(object.ID) string) (all []object.Problem) {
	for _, r := range b.ledger.refusals() {
		all = append(all, object.Problem{ID: r.id, Location: locate(r.id),
			Code: problem.NotAllowed, Severity: problem.Error, Message: r.why})
	}
	for _, u := range b.ledger.above(warnAt) {
		id := object.ID{Kind: "Namespace", Name: u.tenant}
		if label, is := strings.CutPrefix(u.tenant, TenantLabel+"="); is {
			id = object.ID{Kind: "Tenant", Name: label}
		}
		all = append(all, object.Problem{ID: id, Code: problem.NotAllowed, Severity: problem.Warning, Message: b.ledger.warning(u)})
	}
	return all
}

// NamespaceOf returns the namespace of a problem; empty: the mesh. Problems of a tenant of several namespaces have
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

// showTenants sets the metrics of tenants that use half of a budget or more, the largest first, if the ledger has
// changed.
func (b *budgets) showTenants() {
	if b == nil || b.ledger.version == b.shown {
		return
	}
	b.shown = b.ledger.version
	obs.TenantObjects.Reset()
	obs.TenantBytes.Reset()
	large := b.ledger.above(50)
	slices.SortStableFunc(large, func(one, other usage) int {
		return cmp.Or(cmp.Compare(other.used[inBytes], one.used[inBytes]), cmp.Compare(other.used[inObjects], one.used[inObjects]))
	})
	for _, u := range large[:min(len(large), shownTenants)] {
		obs.TenantObjects.WithLabelValues(u.tenant).Set(float64(u.used[inObjects]))
		obs.TenantBytes.WithLabelValues(u.tenant).Set(float64(u.used[inBytes]))
	}
	waiting := 0
	for _, a := range b.ledger.accounts {
		waiting += len(a.waiting)
	}
	obs.TenantRefused.Set(float64(waiting))
}
