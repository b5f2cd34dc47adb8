package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/object"
)

// Budget bounds what one tenant may have; 0: no bound. A tenant is a namespace, or all namespaces whose Namespace
// objects have the same value of TenantLabel.
type Budget struct {
	Objects int // that give records
	Bytes   int // of their canonical records
	// Estimated MiB of each replica (store/weight): for what proxies of other namespaces get too, and for what those of
	// its own alone get.
	Exported, Own int
}

// The resources that budgets bound; the last two in KiB.
const (
	inObjects = iota
	inBytes
	inExported
	inOwn
	resources
)

// resource names each of them where there is no room: how many count as one, of what, and by which flag.
var resource = [resources]struct {
	unit     int
	of, flag string
}{
	{1, "objects", "--tenant-max-objects"},
	{1, "bytes of configuration", "--tenant-max-bytes"},
	{1024, "MiB of each replica for what it exports", "--tenant-max-exported"},
	{1024, "MiB of each replica for what only its own proxies get", "--tenant-max-own"},
}

// limits are those of each resource.
func (b Budget) limits() charge { return charge{b.Objects, b.Bytes, b.Exported * 1024, b.Own * 1024} }

// TenantLabel makes one tenant of several namespaces.
const TenantLabel = isolation.TenantLabel

// warnAt is the share of a budget, in percent, from which on a tenant is warned.
const warnAt = 80

// charge has, for each resource, the amount that an object costs or a tenant uses.
type charge [resources]int

func (c charge) plus(o charge) charge {
	for i, n := range o {
		c[i] += n
	}
	return c
}

func (c charge) minus(o charge) charge {
	for i, n := range o {
		c[i] -= n
	}
	return c
}

// demand is one object: what it counts for in the budget now, and what it is to count for.
type demand struct {
	id      object.ID
	created int64   // Unix seconds; 0: unknown
	exempt  bool    // it counts and is never refused
	stands  charge  // of the version that applies, as it was taken
	today   charge  // of the same, as it weighs beside the present mesh; empty: there was no need to ask
	wants   *charge // of a newer version that waits for room, or for settle; nil: none waits
	stale   bool    // wants is to be weighed again
}

// grows says whether the budget has a say: what shrinks or stays is always taken.
func (c *demand) grows() bool {
	if c.exempt {
		return false
	}
	for i := range c.wants {
		if c.more(i) {
			return true
		}
	}
	return false
}

// more reports whether a demand wants more of a resource than the version that applies has. That version grows
// heavier after it was taken by what others export, which is no growth of the demand.
func (c *demand) more(i int) bool { return c.wants[i] > max(c.stands[i], c.today[i]) }

// older is the order in which demands are served: creation time, then namespace and name.
func older(a, b *demand) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id.Namespace, b.id.Namespace),
		cmp.Compare(a.id.Name, b.id.Name), a.id.Compare(b.id))
}

// account is one tenant.
type account struct {
	used    charge
	demands map[object.ID]*demand
	waiting []*demand // those with wants, in order
}

// ledger says which objects the tenants' budgets have room for. An object that applies is never taken away; a version
// that is larger is refused at the limit, and offered again whenever something of its tenant changes. It knows nothing
// of records.
type ledger struct {
	budget   Budget
	labels   map[string]string             // namespace -> value of TenantLabel, where it has one
	accounts map[string]*account           // by tenant; none is empty
	dirty    map[string]bool               // tenants that settle looks at
	version  uint64                        // counts changes
	weigh    func(id object.ID, c *charge) // weighs again an offer that is stale, once those before it are taken
	today    func(id object.ID) charge     // weighs what applies of an offer that there is no room for; nil: as it was taken
	apply    func(id object.ID)            // is told at once of what is taken; nil: nobody is
}

func newLedger(b Budget) *ledger {
	return &ledger{budget: b, labels: map[string]string{}, accounts: map[string]*account{}, dirty: map[string]bool{}}
}

// tenant names whose a namespace is: itself, or TenantLabel=value, which is no namespace's name.
func (l *ledger) tenant(namespace string) string {
	return isolation.TenantOf(namespace, l.labels[namespace])
}

// touch is the account of a tenant that changes; one is made where there is none.
func (l *ledger) touch(tenant string) *account {
	l.dirty[tenant] = true
	l.version++
	a := l.accounts[tenant]
	if a == nil {
		a = &account{demands: map[object.ID]*demand{}}
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
		a.wait(c)
	}
	a.used = a.used.plus(c.stands)
}

// wait puts a demand in its place among those that wait.
func (a *account) wait(c *demand) {
	i, _ := slices.BinarySearchFunc(a.waiting, c, older)
	a.waiting = slices.Insert(a.waiting, i, c)
}

// settled takes a demand out of those that wait.
func (a *account) settled(c *demand) {
	if i, waits := slices.BinarySearchFunc(a.waiting, c, older); waits {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	}
}

func (a *account) remove(c *demand) {
	delete(a.demands, c.id)
	a.settled(c)
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
	a.settled(c) // its place may be another
	c.created, c.exempt, c.wants, c.stale = created, exempt, &size, false
	c.today = charge{}
	a.wait(c)
}

// reweigh has an offer weighed again before it is taken, or refused again.
func (l *ledger) reweigh(id object.ID) {
	if c := l.of(id); c != nil {
		c.stale = c.wants != nil
	}
}

// stand counts an object that applies whatever the budget says.
func (l *ledger) stand(id object.ID, created int64, exempt bool, size charge) {
	l.drop(id)
	l.touch(l.tenant(id.Namespace)).add(&demand{id: id, created: created, exempt: exempt, stands: size})
}

// withdraw takes back the offer of a newer version; the one that applies goes on to apply.
func (l *ledger) withdraw(id object.ID) {
	if c := l.of(id); c != nil && c.wants != nil {
		l.touch(l.tenant(id.Namespace)).settled(c)
		c.wants = nil
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
		for _, growing := range []bool{false, true} {
			for _, c := range a.waiting {
				if c.stale {
					c.stale, c.today = false, charge{}
					l.weigh(c.id, c.wants)
				}
				if c.grows() != growing {
					continue
				}
				if growing && !l.fitsToday(a, c) {
					continue
				}
				a.used = a.used.minus(c.stands).plus(*c.wants)
				c.stands, c.today, c.wants = *c.wants, charge{}, nil
				if c.stands == (charge{}) {
					delete(a.demands, c.id)
				}
				if taken = append(taken, c.id); l.apply != nil {
					l.apply(c.id)
				}
			}
			a.waiting = slices.DeleteFunc(a.waiting, func(c *demand) bool { return c.wants == nil })
		}
		if len(a.demands) == 0 {
			delete(l.accounts, tenant)
		}
	}
	clear(l.dirty)
	return taken
}

// fits says whether there is room for what a demand wants, and which resource has none.
func (l *ledger) fits(a *account, c *demand) (fits bool, lacks int) {
	next, limits := a.used.minus(c.stands).plus(*c.wants), l.budget.limits()
	for i, limit := range limits {
		if limit > 0 && c.more(i) && next[i] > limit {
			return false, i
		}
	}
	return true, 0
}

// fitsToday weighs what applies of a demand again only where the demand would be refused: others cost nothing more.
func (l *ledger) fitsToday(a *account, c *demand) bool {
	fits, _ := l.fits(a, c)
	if fits || l.today == nil || c.stands == (charge{}) || c.today != (charge{}) {
		return fits
	}
	c.today = l.today(c.id)
	fits, _ = l.fits(a, c)
	return fits
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
		for _, c := range a.waiting {
			next := a.used.minus(c.stands).plus(*c.wants)
			stands := "what stood before stands"
			if c.stands == (charge{}) {
				stands = "it is not there"
			}
			_, lacks := l.fits(a, c)
			of := resource[lacks]
			why := fmt.Sprintf("refused: with it tenant %q would have %d %s, and %d are allowed (%s): %s", tenant, next[lacks]/of.unit, of.of,
				l.budget.limits()[lacks]/of.unit, of.flag, stands)
			if lacks >= inExported {
				why += fmt.Sprintf("; by itself it counts for %d MiB", c.wants[lacks]/of.unit)
			}
			all = append(all, refusal{c.id, why})
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
	limits := l.budget.limits()
	for _, tenant := range slices.Sorted(maps.Keys(l.accounts)) {
		used := l.accounts[tenant].used
		for i, limit := range limits {
			if limit > 0 && used[i]*100 >= limit*percent {
				all = append(all, usage{tenant, used})
				break
			}
		}
	}
	return all
}

// warning is the text for a tenant above warnAt. All but objects are in percent, so that not every edit is another
// problem.
func (l *ledger) warning(u usage) string {
	text := fmt.Sprintf("tenant %q is near the limit of its budget, where new and growing objects are refused:", u.tenant)
	for i, limit := range l.budget.limits() {
		switch {
		case limit == 0 || i >= inExported && u.used[i]*100 < limit*warnAt:
		case i == inObjects:
			text += fmt.Sprintf(" %d of %d %s", u.used[i], limit, resource[i].of)
		case i == inBytes:
			text += fmt.Sprintf(" %d %% of %d bytes", u.used[i]*100/limit, limit)
		default:
			text += fmt.Sprintf(" %d %% of %d %s", u.used[i]*100/limit, limit/resource[i].unit, resource[i].of)
		}
	}
	return text
}
