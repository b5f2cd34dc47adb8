package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Budget bounds the configuration of each tenant. A field of 0 sets no bound. A tenant is a namespace, or all
// namespaces whose Namespace objects have the same value of TenantLabel. Pods, EndpointSlices, ServiceAccounts, and
// objects of the system namespace and the root namespace do not count. Secrets count only by weight (Exported, Own).
// Security policies count, but are never refused.
type Budget struct {
	Objects int // objects with records
	Bytes   int // bytes of encoded records
	// Exported and Own are estimated MiB in each replica (store/weight). Exported is for configuration that proxies of
	// other namespaces receive too, and Own for configuration that only proxies of the tenant's own namespaces receive.
	// Each KiB of one object above 256 KiB counts four times for Exported.
	Exported, Own int
}

// These are the bounded resources. Amounts of inExported and inOwn are in KiB.
const (
	inObjects = iota
	inBytes
	inExported
	inOwn
	resources
)

// resource describes each resource for messages. The field unit is the factor from the unit of a charge to the unit of
// the message. The field named of is a noun with this unit, and flag is the flag that sets the limit.
var resource = [resources]struct {
	unit     int
	of, flag string
}{
	{1, "objects", "--tenant-max-objects"},
	{1, "bytes of configuration", "--tenant-max-bytes"},
	{1024, "MiB of each replica for exported objects", "--tenant-max-exported"},
	{1024, "MiB of each replica for objects that only its own proxies get", "--tenant-max-own"},
}

// limits returns the limit of each resource; 0: no bound.
func (b Budget) limits() charge { return charge{b.Objects, b.Bytes, b.Exported * 1024, b.Own * 1024} }

// TenantLabel is the label of Namespaces that joins several namespaces into one tenant.
const TenantLabel = isolation.TenantLabel

// warnAt is the percentage of a limit at which the tenant gets a warning.
const warnAt = 80

// charge is an amount of each resource.
type charge [resources]int

// plus returns the sum of two charges.
func (c charge) plus(o charge) charge {
	for i, n := range o {
		c[i] += n
	}
	return c
}

// minus returns the difference of two charges.
func (c charge) minus(o charge) charge {
	for i, n := range o {
		c[i] -= n
	}
	return c
}

// demand contains the charges of one object: of its applied version, and of a newer version that is not admitted yet.
type demand struct {
	id      object.ID
	created int64   // Unix seconds; 0: unknown
	exempt  bool    // counts, and is never refused
	applied charge  // charge of the applied version, as computed when it was admitted
	present charge  // charge of the applied version with the present records of the mesh; zero: not computed
	wanted  *charge // charge of a newer version that waits for admission; nil: no version waits
	stale   bool    // wanted has to be computed again
}

// grows reports whether the waiting version of a demand needs the budget's permission. A version that does not grow is
// always admitted.
func (c *demand) grows() bool {
	if c.exempt {
		return false
	}
	for i := range c.wanted {
		if c.more(i) {
			return true
		}
	}
	return false
}

// more reports whether the waiting version needs more of the resource i than the applied version uses. The charge of
// the applied version may have grown since its admission because of what other namespaces export. This growth does not
// count.
func (c *demand) more(i int) bool { return c.wanted[i] > max(c.applied[i], c.present[i]) }

// older orders demands by creation time, then namespace and name. Unknown creation times come last. Budgets are
// granted in this order.
func older(a, b *demand) int {
	return cmp.Or(model.CompareCreated(a.created, b.created), cmp.Compare(a.id.Namespace, b.id.Namespace),
		cmp.Compare(a.id.Name, b.id.Name), a.id.Compare(b.id))
}

// account contains the demands of one tenant.
type account struct {
	used    charge
	demands map[object.ID]*demand
	waiting []*demand // demands with a waiting version, sorted by older
}

// ledger decides which versions of objects the budgets of the tenants permit. An applied version is never removed. A
// newer version that grows beyond the limit is refused. The ledger decides about this version again whenever an object
// of its tenant changes. The ledger does not read records.
type ledger struct {
	budget   Budget
	labels   map[string]string   // value of TenantLabel, by namespace
	accounts map[string]*account // by tenant, without empty accounts
	changed  map[string]bool     // tenants whose waiting versions the next call of admit decides about
	version  uint64              // number of changes
	// The function weigh computes the charge of a stale version, after earlier versions are decided about.
	weigh func(id object.ID, c *charge)
	// computes the present charge of an applied version, before its newer version is refused; nil: not used
	weighApplied func(id object.ID) charge
	apply        func(id object.ID) // called for each object as soon as it is admitted; nil: not used
}

// newLedger returns an empty ledger.
func newLedger(b Budget) *ledger {
	return &ledger{budget: b, labels: map[string]string{}, accounts: map[string]*account{}, changed: map[string]bool{}}
}

// tenant returns the tenant of a namespace: the namespace itself, or TenantLabel=value, which cannot be the name of a
// namespace.
func (l *ledger) tenant(namespace string) string {
	return isolation.TenantOf(namespace, l.labels[namespace])
}

// touch marks a tenant as changed, and returns its account. It creates a missing account.
func (l *ledger) touch(tenant string) *account {
	l.changed[tenant] = true
	l.version++
	a := l.accounts[tenant]
	if a == nil {
		a = &account{demands: map[object.ID]*demand{}}
		l.accounts[tenant] = a
	}
	return a
}

// label sets the value of TenantLabel of a namespace. An empty value removes the label. The namespace moves to another
// tenant with all its demands, even beyond the budget of that tenant.
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

// add adds a demand to an account.
func (a *account) add(c *demand) {
	a.demands[c.id] = c
	if c.wanted != nil {
		a.wait(c)
	}
	a.used = a.used.plus(c.applied)
}

// wait inserts a demand into a.waiting, in the order of the function older.
func (a *account) wait(c *demand) {
	i, _ := slices.BinarySearchFunc(a.waiting, c, older)
	a.waiting = slices.Insert(a.waiting, i, c)
}

// settled removes a demand from a.waiting, if it is there.
func (a *account) settled(c *demand) {
	if i, waits := slices.BinarySearchFunc(a.waiting, c, older); waits {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	}
}

// remove removes a demand from an account.
func (a *account) remove(c *demand) {
	delete(a.demands, c.id)
	a.settled(c)
	a.used = a.used.minus(c.applied)
}

// of returns the demand of an object, or nil.
func (l *ledger) of(id object.ID) *demand {
	if a := l.accounts[l.tenant(id.Namespace)]; a != nil {
		return a.demands[id]
	}
	return nil
}

// offer records a newer version of an object with its charge. The next admit decides about the version.
func (l *ledger) offer(id object.ID, created int64, exempt bool, size charge) {
	c := l.of(id)
	a := l.touch(l.tenant(id.Namespace))
	if c == nil {
		c = &demand{id: id}
		a.demands[id] = c
	}
	a.settled(c) // its position may change with created
	c.created, c.exempt, c.wanted, c.stale = created, exempt, &size, false
	c.present = charge{}
	a.wait(c)
}

// reweigh marks the charge of a waiting version as stale.
func (l *ledger) reweigh(id object.ID) {
	if c := l.of(id); c != nil {
		c.stale = c.wanted != nil
	}
}

// addApplied replaces the demand of an object. The version of the new demand applies regardless of the budget.
func (l *ledger) addApplied(id object.ID, created int64, exempt bool, size charge) {
	l.drop(id)
	l.touch(l.tenant(id.Namespace)).add(&demand{id: id, created: created, exempt: exempt, applied: size})
}

// withdraw removes the waiting version of an object. The applied version stays.
func (l *ledger) withdraw(id object.ID) {
	if c := l.of(id); c != nil && c.wanted != nil {
		l.touch(l.tenant(id.Namespace)).settled(c)
		c.wanted = nil
	}
}

// drop removes the demand of an object.
func (l *ledger) drop(id object.ID) {
	if c := l.of(id); c != nil {
		l.touch(l.tenant(id.Namespace)).remove(c)
	}
}

// admit admits the waiting versions that the budgets permit, in the tenants that changed. It returns the admitted
// objects, tenant by tenant: first versions that do not grow, then those that do, the oldest first. A refused version
// does not delay later ones.
func (l *ledger) admit() (admitted []object.ID) {
	for _, tenant := range slices.Sorted(maps.Keys(l.changed)) {
		a := l.accounts[tenant]
		for _, growing := range []bool{false, true} {
			for _, c := range a.waiting {
				if c.stale {
					c.stale, c.present = false, charge{}
					l.weigh(c.id, c.wanted)
				}
				if c.grows() != growing {
					continue
				}
				if growing && !l.fitsAtPresent(a, c) {
					continue
				}
				a.used = a.used.minus(c.applied).plus(*c.wanted)
				c.applied, c.present, c.wanted = *c.wanted, charge{}, nil
				if c.applied == (charge{}) {
					delete(a.demands, c.id)
				}
				if admitted = append(admitted, c.id); l.apply != nil {
					l.apply(c.id)
				}
			}
			a.waiting = slices.DeleteFunc(a.waiting, func(c *demand) bool { return c.wanted == nil })
		}
		if len(a.demands) == 0 {
			delete(l.accounts, tenant)
		}
	}
	clear(l.changed)
	return admitted
}

// fits reports whether the budget permits the waiting version of a demand. If not, the result lacks is the first
// resource whose limit the version would exceed.
func (l *ledger) fits(a *account, c *demand) (fits bool, lacks int) {
	next, limits := a.used.minus(c.applied).plus(*c.wanted), l.budget.limits()
	for i, limit := range limits {
		if limit > 0 && c.more(i) && next[i] > limit {
			return false, i
		}
	}
	return true, 0
}

// fitsAtPresent reports whether the budget permits the waiting version, given the present charge of the applied
// version. That charge is computed only before a refusal, because the computation is expensive.
func (l *ledger) fitsAtPresent(a *account, c *demand) bool {
	fits, _ := l.fits(a, c)
	if fits || l.weighApplied == nil || c.applied == (charge{}) || c.present != (charge{}) {
		return fits
	}
	c.present = l.weighApplied(c.id)
	fits, _ = l.fits(a, c)
	return fits
}

// refusal is a version that the budget does not permit, with the reason.
type refusal struct {
	id  object.ID
	why string
}

// refusals returns the refused versions by tenant, the oldest first.
func (l *ledger) refusals() (all []refusal) {
	for _, tenant := range slices.Sorted(maps.Keys(l.accounts)) {
		a := l.accounts[tenant]
		for _, c := range a.waiting {
			next := a.used.minus(c.applied).plus(*c.wanted)
			stands := "the previous version stays in effect"
			switch {
			case c.applied != (charge{}):
			case objectsOf(c.id) == 0: // a small version counts for nothing, so it may be applied
				stands = "a previous version, if any, stays in effect"
			default:
				stands = "the object is not in effect"
			}
			_, lacks := l.fits(a, c)
			of := resource[lacks]
			why := fmt.Sprintf("refused: with it tenant %q would have %d %s, and %d are allowed (%s): %s", tenant, next[lacks]/of.unit, of.of,
				l.budget.limits()[lacks]/of.unit, of.flag, stands)
			if lacks >= inExported {
				why += fmt.Sprintf("; by itself it counts for %d MiB", c.wanted[lacks]/of.unit)
			}
			all = append(all, refusal{c.id, why})
		}
	}
	return all
}

// usage is the amount of each resource that a tenant uses.
type usage struct {
	tenant string
	used   charge
}

// above returns the tenants that use at least a percentage of one of their limits, sorted by name.
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

// warning returns the text for a tenant that has reached warnAt. All amounts except objects are in percent, so the text
// changes rarely.
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
