package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/store/object"
)

// Budget bounds what one tenant may have; 0: no bound. A tenant is a namespace, or all namespaces whose Namespace objects
// have the same value of TenantLabel.
type Budget struct {
	Objects int // that give records
	Bytes   int // of their canonical records
}

// TenantLabel makes one tenant of several namespaces.
const TenantLabel = "navarch.io/tenant"

// warnAt is the share of a budget, in percent, from which on a tenant is warned.
const warnAt = 80

// charge is what an object costs, or what a tenant uses.
type charge struct{ objects, bytes int }

func (c charge) plus(o charge) charge  { return charge{c.objects + o.objects, c.bytes + o.bytes} }
func (c charge) minus(o charge) charge { return charge{c.objects - o.objects, c.bytes - o.bytes} }

// demand is one object: what it counts for in the budget now, and what it is to count for.
type demand struct {
	id      object.ID
	created int64   // Unix seconds; 0: unknown
	exempt  bool    // it counts and is never refused
	stands  charge  // of the version that applies
	wants   *charge // of a newer version that waits for room, or for settle; nil: none waits
}

// grows says whether the budget has a say: what shrinks or stays is always taken.
func (c *demand) grows() bool {
	return !c.exempt && (c.wants.objects > c.stands.objects || c.wants.bytes > c.stands.bytes)
}

// older is the order in which demands are served: creation time, then namespace and name.
func older(a, b *demand) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id.Namespace, b.id.Namespace), cmp.Compare(a.id.Name, b.id.Name), a.id.Compare(b.id))
}

// account is one tenant.
type account struct {
	used    charge
	demands map[object.ID]*demand
	waiting map[object.ID]*demand // those with wants
}

// ledger says which objects the tenants' budgets have room for. An object that applies is never taken away; a version that is larger is refused at
// the limit, and offered again whenever something of its tenant changes. It knows nothing of records.
type ledger struct {
	budget   Budget
	labels   map[string]string   // namespace -> value of TenantLabel, where it has one
	accounts map[string]*account // by tenant; none is empty
	dirty    map[string]bool     // tenants that settle looks at
	version  uint64              // counts changes
}

func newLedger(b Budget) *ledger {
	return &ledger{budget: b, labels: map[string]string{}, accounts: map[string]*account{}, dirty: map[string]bool{}}
}

// tenant names whose a namespace is: itself, or TenantLabel=value, which is no namespace's name.
func (l *ledger) tenant(namespace string) string {
	if label := l.labels[namespace]; label != "" {
		return TenantLabel + "=" + label
	}
	return namespace
}

// touch is the account of a tenant that changes; one is made where there is none.
func (l *ledger) touch(tenant string) *account {
	l.dirty[tenant] = true
	l.version++
	a := l.accounts[tenant]
	if a == nil {
		a = &account{demands: map[object.ID]*demand{}, waiting: map[object.ID]*demand{}}
		l.accounts[tenant] = a
	}
	return a
}

// label moves a namespace to another tenant, with all that stands there: it may be more than the budget has room for.
func (l *ledger) label(namespace, value string) {
	if l.labels[namespace] == value {
		return
	}
	from := l.touch(l.tenant(namespace))
	if l.labels[namespace] = value; value == "" {
		delete(l.labels, namespace)
	}
	to := l.touch(l.tenant(namespace))
	for id, c := range from.demands {
		if id.Namespace == namespace {
			from.remove(c)
			to.add(c)
		}
	}
}

func (a *account) add(c *demand) {
	a.demands[c.id] = c
	if c.wants != nil {
		a.waiting[c.id] = c
	}
	a.used = a.used.plus(c.stands)
}

func (a *account) remove(c *demand) {
	delete(a.demands, c.id)
	delete(a.waiting, c.id)
	a.used = a.used.minus(c.stands)
}

// of is the demand of an object; nil: there is none.
func (l *ledger) of(id object.ID) *demand {
	if a := l.accounts[l.tenant(id.Namespace)]; a != nil {
		return a.demands[id]
	}
	return nil
}

// offer is what an object should be from now on; settle decides.
func (l *ledger) offer(id object.ID, created int64, exempt bool, size charge) {
	c := l.of(id)
	a := l.touch(l.tenant(id.Namespace))
	if c == nil {
		c = &demand{id: id}
		a.demands[id] = c
	}
	c.created, c.exempt, c.wants = created, exempt, &size
	a.waiting[id] = c
}

// stand counts an object that applies whatever the budget says.
func (l *ledger) stand(id object.ID, created int64, exempt bool, size charge) {
	l.drop(id)
	l.touch(l.tenant(id.Namespace)).add(&demand{id: id, created: created, exempt: exempt, stands: size})
}

// withdraw takes back the offer of a newer version; the one that applies goes on to apply.
func (l *ledger) withdraw(id object.ID) {
	if c := l.of(id); c != nil && c.wants != nil {
		c.wants = nil
		delete(l.touch(l.tenant(id.Namespace)).waiting, id)
	}
}

// drop removes an object that is gone.
func (l *ledger) drop(id object.ID) {
	if c := l.of(id); c != nil {
		l.touch(l.tenant(id.Namespace)).remove(c)
	}
}

// admit takes what there is room for, in tenants that changed, and returns it in order: first what does not grow, then
// the others, the oldest first. One that does not fit holds up nobody behind it.
func (l *ledger) admit() (taken []object.ID) {
	for _, tenant := range slices.Sorted(maps.Keys(l.dirty)) {
		a := l.accounts[tenant]
		order := slices.SortedFunc(maps.Values(a.waiting), older)
		for _, growing := range []bool{false, true} {
			for _, c := range order {
				if c.wants == nil || c.grows() != growing || growing && !l.fits(a, c) {
					continue
				}
				a.used = a.used.minus(c.stands).plus(*c.wants)
				c.stands, c.wants = *c.wants, nil
				delete(a.waiting, c.id)
				if c.stands == (charge{}) {
					delete(a.demands, c.id)
				}
				taken = append(taken, c.id)
			}
		}
		if len(a.demands) == 0 {
			delete(l.accounts, tenant)
		}
	}
	clear(l.dirty)
	return taken
}

func (l *ledger) fits(a *account, c *demand) bool {
	next := a.used.minus(c.stands).plus(*c.wants)
	within := func(limit, stands, wants, next int) bool { return limit == 0 || wants <= stands || next <= limit }
	return within(l.budget.Objects, c.stands.objects, c.wants.objects, next.objects) &&
		within(l.budget.Bytes, c.stands.bytes, c.wants.bytes, next.bytes)
}

// refusal is an offer that there is no room for, and why.
type refusal struct {
	id  object.ID
	why string
}

// refusals are the offers that settle left, in the order in which they will be taken.
func (l *ledger) refusals() (all []refusal) {
	for _, tenant := range slices.Sorted(maps.Keys(l.accounts)) {
		a := l.accounts[tenant]
		for _, c := range slices.SortedFunc(maps.Values(a.waiting), older) {
			next := a.used.minus(c.stands).plus(*c.wants)
			stands := "what stood before stands"
			if c.stands == (charge{}) {
				stands = "it is not there"
			}
			over := func(n, limit int, of, flag string) {
				all = append(all, refusal{c.id, fmt.Sprintf("refused: with it tenant %q would have %d %s, and %d are allowed (%s): %s", tenant, n, of, limit, flag, stands)})
			}
			if limit := l.budget.Objects; limit > 0 && c.wants.objects > c.stands.objects && next.objects > limit {
				over(next.objects, limit, "objects", "--tenant-max-objects")
			} else {
				over(next.bytes, l.budget.Bytes, "bytes of configuration", "--tenant-max-bytes")
			}
		}
	}
	return all
}

// usage is what a tenant has.
type usage struct {
	tenant string
	used   charge
}

// above are the tenants that use a percentage of one of their budgets or more, by name.
func (l *ledger) above(percent int) (all []usage) {
	over := func(used, limit int) bool { return limit > 0 && used*100 >= limit*percent }
	for _, tenant := range slices.Sorted(maps.Keys(l.accounts)) {
		used := l.accounts[tenant].used
		if over(used.objects, l.budget.Objects) || over(used.bytes, l.budget.Bytes) {
			all = append(all, usage{tenant, used})
		}
	}
	return all
}

// warning is the text for a tenant above warnAt. Bytes are in percent, so that not every edit is another problem.
func (l *ledger) warning(u usage) string {
	text := fmt.Sprintf("tenant %q is near the limit of its budget, where new and growing objects are refused:", u.tenant)
	if limit := l.budget.Objects; limit > 0 {
		text += fmt.Sprintf(" %d of %d objects", u.used.objects, limit)
	}
	if limit := l.budget.Bytes; limit > 0 {
		text += fmt.Sprintf(" %d %% of %d bytes", u.used.bytes*100/limit, limit)
	}
	return text
}
