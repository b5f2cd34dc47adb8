package allocate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"navarch.io/navarch/store/normal"
)

// Bounds of what others can make a mesh give away.
const (
	mostOfEntry     = 256     // hosts of one ServiceEntry that have automatic addresses: as many as its CRD takes
	MostOfNamespace = 1 << 14 // hosts of one namespace
)

// Name is of a ServiceEntry of the config cluster.
type Name struct{ Namespace, Name string }

// String is namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

func (n Name) compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// ServiceEntry is one as a source emits it.
type ServiceEntry struct {
	Name
	Created time.Time
	normal.EntryAddresses
}

// Hosts is addresses by host: IPv4 before IPv6.
type Hosts map[string][]netip.Addr

// book is who has which address. It is the leader's, for one term: it asks no clock and nobody. What an object's status says counts before
// what is stored, and that before a new address. Stating an address of the ranges in a spec keeps it from being given to somebody, and takes it
// from nobody who was given it (store/normal leaves it out there). Not safe for concurrent use.
type book struct {
	ranges    []netip.Prefix
	grace     time.Duration
	entries   map[Name]*entry
	owners    map[netip.Addr]slot // of addresses that were given
	stated    map[netip.Addr]int  // of the ranges: how many ServiceEntries state an address themselves
	used      []int               // of each range: addresses in owners and in stated
	of        map[string]int      // hosts that have addresses, by namespace
	leaving   map[slot]time.Time  // hosts that are not there any more: since when
	dirty     map[Name]bool       // to be looked at
	short     map[Name]bool       // that lack an address
	altered   map[Name]bool       // that have others than at the last Step
	allocates bool                // as the last Step was called with
}

// slot is one host of one ServiceEntry.
type slot struct {
	name Name
	host string
}

type entry struct {
	ServiceEntry
	there   bool // a source has emitted it
	has     map[string]*given
	problem string
}

// given is what one host has.
type given struct {
	addresses []netip.Addr
	status    bool // the object's status says so
}

// newBook gives addresses of these ranges, one of each to every host, and takes them back when a host was not there for grace.
func newBook(grace time.Duration, ranges ...netip.Prefix) *book {
	return &book{ranges: ranges, used: make([]int, len(ranges)), grace: grace, entries: map[Name]*entry{}, owners: map[netip.Addr]slot{}, stated: map[netip.Addr]int{}, of: map[string]int{},
		leaving: map[slot]time.Time{}, dirty: map[Name]bool{}, short: map[Name]bool{}, altered: map[Name]bool{}}
}

// Load takes what is stored of one ServiceEntry, before the first Put. What somebody else has is left out.
func (b *book) Load(name Name, hosts Hosts) {
	e := b.entry(name)
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if free := !slices.ContainsFunc(hosts[host], func(a netip.Addr) bool { _, taken := b.owners[a]; return taken }); free {
			b.give(e, host, &given{addresses: hosts[host]})
		}
	}
	b.dirty[name], b.altered[name] = true, true
}

func (b *book) entry(name Name) *entry {
	e := b.entries[name]
	if e == nil {
		e = &entry{ServiceEntry: ServiceEntry{Name: name}, has: map[string]*given{}}
		b.entries[name] = e
	}
	return e
}

// Put takes a ServiceEntry as it is now.
func (b *book) Put(now ServiceEntry) {
	e := b.entry(now.Name)
	b.restate(e.Stated, now.Stated)
	e.ServiceEntry, e.there = now, true
	b.dirty[now.Name] = true
}

// Remove takes one away.
func (b *book) Remove(name Name) {
	if e := b.entries[name]; e != nil {
		b.restate(e.Stated, nil)
		e.ServiceEntry, e.there = ServiceEntry{Name: name}, false
		b.dirty[name] = true
	}
}

// restate follows which addresses of the ranges are stated: hosts that are gone give them up.
func (b *book) restate(was, is []netip.Addr) {
	for _, a := range is {
		if b.within(a) {
			if b.stated[a]++; b.stated[a] == 1 {
				b.count(a, 1)
			}
			if at, given := b.owners[a]; given {
				b.dirty[at.name] = true
			}
		}
	}
	for _, a := range was {
		if !b.within(a) {
			continue
		}
		if b.stated[a]--; b.stated[a] <= 0 {
			delete(b.stated, a)
			b.count(a, -1)
			b.retry()
		}
	}
}

func (b *book) within(a netip.Addr) bool {
	return slices.ContainsFunc(b.ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// count follows how many addresses of each range are used.
func (b *book) count(a netip.Addr, by int) {
	for i, p := range b.ranges {
		if p.Contains(a) {
			b.used[i] += by
		}
	}
}

// retry has all that lack an address looked at again.
func (b *book) retry() {
	for name := range b.short {
		b.dirty[name] = true
	}
}

// Step decides what changed, and says which ServiceEntries have other addresses than before, in order. allocate: hosts without an address are
// given new ones. wait is when it has to be asked again though nothing changed; 0: never.
func (b *book) Step(now time.Time, allocate bool) (altered []Name, wait time.Duration) {
	for at, since := range b.leaving {
		left := b.grace - now.Sub(since)
		if left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		b.release(at)
		b.retry()
	}
	if allocate && !b.allocates {
		b.retry()
	}
	b.allocates = allocate
	for len(b.dirty) > 0 {
		line := slices.SortedFunc(maps.Keys(b.dirty), func(x, y Name) int { return b.entries[x].older(b.entries[y]) })
		clear(b.dirty)
		for _, name := range line {
			b.decide(b.entries[name], now, allocate)
		}
	}
	if len(b.leaving) > 0 && (wait == 0 || wait > b.grace) {
		wait = b.grace
	}
	for _, name := range slices.SortedFunc(maps.Keys(b.altered), Name.compare) {
		altered = append(altered, name)
		if e := b.entries[name]; !e.there && len(e.has) == 0 {
			delete(b.entries, name)
		}
	}
	clear(b.altered)
	return altered, wait
}

// older orders ServiceEntries: of two that have one address in their status the older keeps it, as with istiod.
func (e *entry) older(o *entry) int {
	return cmp.Or(e.Created.Compare(o.Created), e.Name.compare(o.Name))
}

// decide decides the addresses of the hosts of one ServiceEntry.
func (b *book) decide(e *entry, now time.Time, allocate bool) {
	e.problem = ""
	delete(b.short, e.Name)
	for host, g := range e.has {
		at := slot{e.Name, host}
		_, wanted := slices.BinarySearch(e.Hosts, host)
		switch since := b.leaving[at]; {
		case wanted && !since.IsZero():
			delete(b.leaving, at)
			b.altered[e.Name] = true
		case !wanted && b.isStated(g.addresses):
			b.release(at)
		case !wanted && since.IsZero():
			b.leaving[at] = now
			b.altered[e.Name] = true
		}
	}
	for i, host := range e.Hosts {
		b.decideHost(e, host, i, allocate)
	}
}

// isStated says whether somebody states one of some addresses.
func (b *book) isStated(all []netip.Addr) bool {
	return slices.ContainsFunc(all, func(a netip.Addr) bool { return b.stated[a] > 0 })
}

// decideHost gives one host what its status says, or has it keep what it has. Where that is allowed, it is given a new address of each range of
// whose family it has none.
func (b *book) decideHost(e *entry, host string, i int, allocate bool) {
	at := slot{e.Name, host}
	if won := b.won(at, e.Given[host]); len(won) > 0 {
		b.take(e, host, won)
	} else if have := e.has[host]; have != nil {
		have.status = false
	}
	lacking := b.lacking(e.has[host])
	if len(lacking) == 0 {
		return
	}
	if !allocate {
		b.short[e.Name] = true
		return
	}
	wrong, fresh := "", []netip.Addr(nil)
	switch {
	case i >= mostOfEntry:
		wrong = fmt.Sprintf("the first %d hosts of a ServiceEntry have automatic addresses", mostOfEntry)
	case b.of[e.Namespace] >= MostOfNamespace && e.has[host] == nil:
		wrong = fmt.Sprintf("namespace %s has automatic addresses for %d hosts already", e.Namespace, MostOfNamespace)
	default:
		fresh, wrong = b.choose(at, lacking)
	}
	if wrong != "" {
		b.short[e.Name] = true
		if e.problem == "" {
			e.problem = fmt.Sprintf("host %s has no automatic address of %s: %s", host, lacking[0], wrong)
		}
		return
	}
	b.add(e, host, fresh)
}

// won are those addresses of a status that nobody has a better right to: who states one that the host has not been given yet, and an older object
// whose status has it, too.
func (b *book) won(at slot, stated []netip.Addr) (won []netip.Addr) {
	for _, a := range stated {
		by, taken := b.owners[a]
		other := b.entries[by.name]
		switch {
		case b.stated[a] > 0 && (!taken || by != at):
		case taken && by != at && other.has[by.host].status && other.older(b.entries[at.name]) <= 0 && slices.Contains(other.Given[by.host], a):
		default:
			won = append(won, a)
		}
	}
	return won
}

// take gives a host what its status says; whoever has that gives it up. What the host has of other families it keeps.
func (b *book) take(e *entry, host string, won []netip.Addr) {
	all := won
	if have := e.has[host]; have != nil {
		if all = joined(have.addresses, won); slices.Equal(have.addresses, all) {
			have.status = true
			return
		}
	}
	b.release(slot{e.Name, host})
	for _, a := range won {
		if by, taken := b.owners[a]; taken {
			b.release(by)
			b.dirty[by.name] = true
		}
	}
	b.give(e, host, &given{addresses: all, status: true})
}

// joined returns the addresses of a status, and those that a host has of the families which the status leaves out; IPv4 before IPv6.
func joined(have, won []netip.Addr) []netip.Addr {
	all := slices.Clone(won)
	for _, a := range have {
		if !slices.ContainsFunc(won, func(w netip.Addr) bool { return w.Is4() == a.Is4() }) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// add gives a host addresses beside those that it has.
func (b *book) add(e *entry, host string, fresh []netip.Addr) {
	next := &given{addresses: fresh}
	if have := e.has[host]; have != nil {
		next = &given{addresses: joined(have.addresses, fresh), status: have.status}
		b.release(slot{e.Name, host})
	}
	b.give(e, host, next)
}

func (b *book) give(e *entry, host string, g *given) {
	e.has[host] = g
	for _, a := range g.addresses {
		b.owners[a] = slot{e.Name, host}
		b.count(a, 1)
	}
	b.of[e.Namespace]++
	b.altered[e.Name] = true
}

// release takes back what a host has, if it has anything.
func (b *book) release(at slot) {
	delete(b.leaving, at)
	e := b.entries[at.name]
	g := e.has[at.host]
	if g == nil {
		return
	}
	delete(e.has, at.host)
	for _, a := range g.addresses {
		delete(b.owners, a)
		b.count(a, -1)
	}
	if b.of[at.name.Namespace]--; b.of[at.name.Namespace] == 0 {
		delete(b.of, at.name.Namespace)
	}
	b.altered[at.name] = true
}

// Addresses is what the hosts of a ServiceEntry have that is there.
func (b *book) Addresses(name Name) Hosts {
	e, out := b.entries[name], Hosts{}
	if e == nil {
		return out
	}
	for _, host := range e.Hosts {
		if g := e.has[host]; g != nil {
			out[host] = g.addresses
		}
	}
	return out
}

// Kept is what a ServiceEntry has and had until a grace ago: what is stored.
func (b *book) Kept(name Name) Hosts {
	e, out := b.entries[name], Hosts{}
	if e == nil {
		return out
	}
	for host, g := range e.has {
		out[host] = g.addresses
	}
	return out
}

// Problems is why ServiceEntries lack an address that are to have one, by name: so many at most, and how many more. While no new ones are given
// nothing is said.
func (b *book) Problems(most int) (all []Problem) {
	for _, name := range slices.SortedFunc(maps.Keys(b.short), Name.compare) {
		if text := b.entries[name].problem; text != "" {
			all = append(all, Problem{name, text})
		}
	}
	if more := len(all) - most; more > 0 {
		all = append(all[:most], Problem{Message: fmt.Sprintf("%d more ServiceEntries lack automatic addresses", more)})
	}
	return all
}
