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

// budgets enforces the budgets of tenants, and reports the problems and metrics of tenants. A tenant is one namespace,
// or all namespaces with the same value of TenantLabel. A budget bounds objects, bytes, and weights, which are
// estimates of memory in each replica (store/weight). The inventory, which has all objects, offers each normalised
// object of a tenant (offer). When all changed objects are normalised, the inventory calls applyBudgets.
type budgets struct {
	ledger  *ledger
	weights *weights
	shown   uint64 // version of the ledger that the metrics show
	version uint64 // version of the ledger from which found was computed
	found   []object.Problem
	secrets []object.ID // Secrets that were offered since the last applyBudgets
}

// newBudgets returns budgets without objects. The function recordsOf returns the applied records of an object, and the
// size of their private key. The function apply is called with each admitted object.
func newBudgets(b Budget, recordsOf func(object.ID) ([]model.Record, int), apply func(object.ID)) *budgets {
	l, most := newLedger(b), b.limits()
	out := &budgets{ledger: l, weights: newWeights(weight.Weight{Exported: most[inExported], Own: most[inOwn]}, l.reweigh)}
	l.weigh = func(id object.ID, c *charge) { *c = c.weighing(out.weights.again(id)) }
	l.weighApplied = func(id object.ID) charge {
		records, private := recordsOf(id)
		return charge{inObjects: objectsOf(id)}.weighing(out.weights.standing(id, records, private))
	}
	l.apply = apply
	return out
}

// counted reports whether the budgets count an object as configuration of its tenant. EndpointSlices and Pods are
// written by controllers, and ServiceAccounts are needed to verify tokens. Of a Secret, only the weight counts. The
// weight is zero for a certificate with its key, because a certificate would expire if its renewed Secret were refused.
// The system namespace and the root namespace configure the mesh and belong to the operators. Objects without a
// namespace are not counted.
func (w *inventory) counted(id object.ID) bool {
	return countedIn(id, w.normal.SystemNamespace, w.objects.Mesh().GetRootNamespace())
}

// countedIn is inventory.counted for a given system namespace and root namespace.
func countedIn(id object.ID, system, root string) bool {
	switch id.Kind {
	case "EndpointSlice", "Pod", "ServiceAccount":
		return false
	}
	return id.Namespace != "" && id.Namespace != system && id.Namespace != root
}

// followRoot applies a change of the root namespace. Budgets do not bound objects of the root namespace. So the refused
// versions of objects in the new root namespace are applied, and the objects of the previous root namespace are added
// to the ledger.
func (w *inventory) followRoot() {
	from, to := w.root, w.objects.Mesh().GetRootNamespace()
	if w.root = to; w.budgets == nil || from == to {
		return
	}
	for id, n := range w.objects.All() {
		switch {
		case id.Namespace != from && id.Namespace != to:
		case w.counted(id):
			w.budgets.ledger.addApplied(id, created(n.Object()), exempt(id), w.budgets.chargeOf(n.Entry.records, len(n.Entry.few().private)))
		default:
			w.budgets.ledger.drop(id)
			if n.Entry.waiting {
				w.applyOffered(id)
			}
		}
	}
}

// exempt reports whether an object is never refused. This holds for policies: without its policy, a workload would
// accept requests that the policy refuses.
func exempt(id object.ID) bool {
	return normal.IsPolicy(id)
}

// chargeOf returns the charge of an object's records: the amounts that the object uses of a budget. The weight of the
// records depends on all records that are applied now. The parameter private is the size of the records' private key in
// bytes.
func (b *budgets) chargeOf(records []model.Record, private int) charge {
	if len(records) == 0 {
		return charge{}
	}
	return b.sizeOf(records).weighing(b.weights.sum(b.weights.measure(records, private), nil))
}

// objectsOf returns the number that an object adds to the number of objects in a charge: 0 for a Secret, 1 for any
// other object.
func objectsOf(id object.ID) int {
	if id.Group == "" && id.Kind == "Secret" {
		return 0
	}
	return 1
}

// sizeOf returns the part of a charge that depends on the records alone: one object, and the bytes if the budget bounds
// bytes. Secrets count for neither.
func (b *budgets) sizeOf(records []model.Record) charge {
	c := charge{inObjects: objectsOf(normal.SourceObject(records[0].Meta().Key))}
	for _, r := range records {
		if b.ledger.budget.Bytes == 0 || c[inObjects] == 0 {
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

// weighing returns a copy of the charge with the weights w.
func (c charge) weighing(w weight.Weight) charge {
	c[inExported], c[inOwn] = w.Exported, w.Own
	return c
}

// offerRecords offers the newest version of an object to the ledger. If the version has the same records as the applied
// version, it keeps the charge of its admission. This holds even if other records have increased its weight since.
func (w *inventory) offerRecords(n *node, records []model.Record, private model.PrivateKey) {
	b, id, c := w.budgets, n.ID(), charge{}
	same := func(a, b model.Record) bool { return a.Meta().Key == b.Meta().Key && a.Meta().Hash == b.Meta().Hash }
	b.weights.forget(id)
	if d := b.ledger.of(id); d != nil && d.applied != (charge{}) && slices.EqualFunc(records, n.Entry.records, same) {
		c = d.applied
	} else if len(records) > 0 {
		c = b.sizeOf(records).weighing(b.weights.offer(id, b.weights.measure(records, len(private)), b.uncharged(id)))
	}
	b.ledger.offer(id, created(n.Object()), exempt(id), c)
	n.Entry.offer(records, private, true)
	if objectsOf(id) == 0 {
		b.secrets = append(b.secrets, id)
	}
}

// uncharged reports whether the applied version of an object, if any, counts for nothing.
func (b *budgets) uncharged(id object.ID) bool {
	d := b.ledger.of(id)
	return d == nil || d.applied == (charge{})
}

// noteTenant stores the labels of a Namespace, and updates the ledger for a deleted or unreadable object. It runs
// before objects are normalised.
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

// offer offers the newest version of an object to the ledger, which decides in admit. The result is false if the ledger
// does not decide, because no budget bounds the object, or because the object is spoiled (invalid). The offer of a
// spoiled object is withdrawn.
func (w *inventory) offer(n *node, r normal.Result) bool {
	id := n.ID()
	if w.budgets == nil || !w.counted(id) {
		return false
	}
	if r.Spoiled {
		w.withdraw(n)
		return false
	}
	w.offerRecords(n, r.Records, r.Private)
	return true
}

// withdraw ends the offer of an object's newest version. The applied records of the object stay.
func (w *inventory) withdraw(n *node) {
	w.budgets.weights.forget(n.ID())
	w.budgets.ledger.withdraw(n.ID())
	n.Entry.offer(nil, nil, false)
}

// created returns the creation time of an object in Unix seconds, or 0 if it is unknown.
func created(o *object.Object) int64 {
	if o == nil {
		return 0
	}
	return o.CreatedAt()
}

// applyBudgets applies the offered objects that fit the budgets. Records of refused Secrets are dropped, because they
// are large and many.
func (w *inventory) applyBudgets() {
	if w.budgets == nil {
		return
	}
	w.budgets.ledger.admit()
	for _, id := range w.budgets.secrets {
		if n := w.objects.Get(id); n != nil && n.Entry.waiting {
			n.Entry.offer(nil, nil, true)
			n.Entry.dropped = true
		}
	}
	w.budgets.secrets = nil
}

// applies returns the applied records of an object, and the size of their private key. The object must exist.
func (w *inventory) applies(id object.ID) ([]model.Record, int) {
	e := &w.objects.Get(id).Entry
	return e.records, len(e.few().private)
}

// newest returns the records of the newest version of an object, with their private key. For a refused Secret, whose
// records were dropped, it computes them again.
func (w *inventory) newest(n *node) ([]model.Record, model.PrivateKey) {
	few := n.Entry.few()
	switch {
	case !n.Entry.waiting:
		return n.Entry.records, few.private
	case n.Entry.dropped:
		r := w.result(n)
		return r.Records, r.Private
	}
	return few.offered, few.sealing
}

// applyOffered applies the offered version of an object.
func (w *inventory) applyOffered(id object.ID) {
	n := w.objects.Get(id)
	records, private := w.newest(n)
	w.budgets.weights.forget(id)
	n.Entry.closed = false
	n.Entry.offer(nil, nil, false)
	w.setRecords(n, records, private)
}

// rebase rebuilds the ledger from a load of the store, and normalises all objects that are marked as changed. Objects
// in the store count as admitted. New and changed objects are offered, and are admitted in the order of their age. So
// refusals do not depend on the leading process or on its earlier decisions.
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
			if objectsOf(id) > 0 {
				stored[id] = charge{1, stored[id][inBytes] + e.Bytes[key]}
			} else if s := e.Secrets[key]; s != nil { // it decodes
				stored[id] = w.budgets.chargeOf([]model.Record{s}, 0)
			}
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

// rebaseObject adds one object to the new ledger. The parameter stored is the charge of the object's records in the
// store. The function same reports whether records equal those in the store.
func (w *inventory) rebaseObject(n *node, stored charge, same func([]model.Record) bool) {
	id, o := n.ID(), &n.Entry
	at, free := created(n.Object()), exempt(id)
	newest, private := w.newest(n)
	switch {
	case o.spoiled && len(o.records) > 0 && !o.closed:
		w.budgets.ledger.addApplied(id, at, free, w.budgets.chargeOf(o.records, len(o.few().private)))
	case o.spoiled: // the stored record stays, see seldom.adopted
		w.budgets.ledger.addApplied(id, at, free, stored)
	case free || same(newest):
		if o.waiting {
			o.offer(nil, nil, false)
			w.setRecords(n, newest, private)
		}
		w.budgets.ledger.addApplied(id, at, free, w.budgets.chargeOf(newest, len(private)))
	case len(newest) == 0 && stored == charge{}:
	default:
		if same(o.records) { // the applied version is older than the newest
			w.budgets.ledger.addApplied(id, at, free, w.budgets.chargeOf(o.records, len(o.few().private)))
		} else {
			w.budgets.ledger.addApplied(id, at, free, stored)
			w.setRecords(n, nil, nil)
		}
		w.offerRecords(n, newest, private)
	}
}

// problems returns the refusals of the budgets, and a warning for each tenant near a limit. It is called after every
// event, and recomputes the problems only if the ledger has changed. If b is nil, there are no problems.
func (b *budgets) problems(locate func(object.ID) string) []object.Problem {
	if b == nil {
		return nil
	}
	if b.version != b.ledger.version {
		b.version, b.found = b.ledger.version, b.findProblems(locate)
	}
	return b.found
}

// findProblems returns the refusals, and a warning for each tenant near a limit.
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
		all = append(all, object.Problem{ID: id, Code: problem.NotAllowed, Analyzer: problem.TenantNearBudget,
			Severity: problem.Warning, Message: b.ledger.warning(u)})
	}
	return all
}

// NamespaceOf returns the namespace to which a problem belongs. It is empty for a problem of the whole mesh. A problem
// of a Namespace object belongs to the namespace with its name. For a problem of a tenant with several namespaces,
// NamespaceOf returns TenantLabel=value.
func NamespaceOf(p object.Problem) string {
	switch {
	case p.ID.Group == "" && p.ID.Kind == "Namespace":
		return p.ID.Name
	case p.ID.Group == "" && p.ID.Kind == "Tenant":
		return TenantLabel + "=" + p.ID.Name
	}
	return p.ID.Namespace
}

// shownTenants is the maximum number of tenants in metrics.
const shownTenants = 100

// showTenants updates the metrics of tenants if the ledger has changed. The metrics show the largest of the tenants
// that use half of a limit or more, and the number of refused versions of all tenants.
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
