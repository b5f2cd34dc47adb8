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

// giver says who gives new addresses.
type giver uint8

const (
	unknown giver = iota // it is not known whether others do: nobody is given a new one
	self                 // this process
	others               // istiod, or another revision: by what they write into the status of objects
)

// book maps each address to the host that has it, for one term of the leader. It reads no clock. An address that is
// stored of a host stays its own. A status counts where nothing is stored, for an address of the ranges that no host
// has, one of each family. While others give addresses a status counts before what is stored, and takes an address
// from a host whose own status no longer names it. An address of the ranges that a spec states is given to no host,
// and a host that was given it before keeps it (store/normal leaves it out of the spec). Not safe for concurrent use.
type book struct {
	ranges   []netip.Prefix
	grace    time.Duration
	entries  map[Name]*entry
	owners   map[netip.Addr]slot // of addresses that were given
	stated   map[netip.Addr]int  // of the ranges: how many ServiceEntries state an address themselves
	used     []int               // of each range: addresses in owners and in stated
	of       map[string]int      // hosts that have addresses, by namespace
	statedIn map[string]int      // addresses of the ranges that ServiceEntries state, by namespace
	leaving  map[slot]time.Time  // hosts that are not there any more: since when
	dirty    map[Name]bool       // to be looked at
	short    map[Name]bool       // that lack an address
	altered  map[Name]bool       // that have others than at the last Step
	giver    giver               // as the last Step was called with
}

// slot is one host of one ServiceEntry.
type slot struct {
	name Name
	host string
}

type entry struct {
	ServiceEntry
	there    bool // a source has emitted it
	has      map[string][]netip.Addr
	reserved []netip.Addr // of the ranges: those that it states, as many as its namespace may
	problem  string
}

// newBook gives addresses of these ranges, one of each to every host, and takes them back when a host was not there
// for grace.
func newBook(grace time.Duration, ranges ...netip.Prefix) *book {
	return &book{ranges: ranges, used: make([]int, len(ranges)), grace: grace, entries: map[Name]*entry{},
		owners: map[netip.Addr]slot{}, stated: map[netip.Addr]int{}, of: map[string]int{}, statedIn: map[string]int{},
		leaving: map[slot]time.Time{}, dirty: map[Name]bool{}, short: map[Name]bool{}, altered: map[Name]bool{}}
}

// Load takes what is stored of one ServiceEntry, before the first Put. What somebody else has is left out.
func (b *book) Load(name Name, hosts Hosts) {
	e := b.entry(name)
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if free := !slices.ContainsFunc(hosts[host], func(a netip.Addr) bool { _, taken := b.owners[a]; return taken }); free {
			b.give(e, host, hosts[host])
		}
	}
	b.dirty[name], b.altered[name] = true, true
}

func (b *book) entry(name Name) *entry {
	e := b.entries[name]
	if e == nil {
		e = &entry{ServiceEntry: ServiceEntry{Name: name}, has: map[string][]netip.Addr{}}
		b.entries[name] = e
	}
	return e
}

// Put takes a ServiceEntry as it is now.
func (b *book) Put(now ServiceEntry) {
	e := b.entry(now.Name)
	b.restate(e, now.Stated)
	e.ServiceEntry, e.there = now, true
	b.dirty[now.Name] = true
}

// Remove takes one away.
func (b *book) Remove(name Name) {
	if e := b.entries[name]; e != nil {
		b.restate(e, nil)
		e.ServiceEntry, e.there = ServiceEntry{Name: name}, false
		b.dirty[name] = true
	}
}

// retry has all that lack an address looked at again.
func (b *book) retry() {
	for name := range b.short {
		b.dirty[name] = true
	}
}

// Step decides what changed, and returns the ServiceEntries with other addresses than before, in order. Hosts without
// an address are given new ones where by is self. wait is when Step has to be called again though nothing changed; 0:
// never.
func (b *book) Step(now time.Time, by giver) (altered []Name, wait time.Duration) {
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
	if by != b.giver {
		b.retry()
	}
	b.giver = by
	for len(b.dirty) > 0 {
		line := slices.SortedFunc(maps.Keys(b.dirty), func(x, y Name) int { return b.entries[x].older(b.entries[y]) })
		clear(b.dirty)
		for _, name := range line {
			b.decide(b.entries[name], now)
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

// older orders ServiceEntries: of two that have one address in their status, and neither has it stored, the older
// gets it, as with istiod.
func (e *entry) older(o *entry) int {
	return cmp.Or(e.Created.Compare(o.Created), e.Name.compare(o.Name))
}

// decide decides the addresses of the hosts of one ServiceEntry.
func (b *book) decide(e *entry, now time.Time) {
	e.problem = ""
	delete(b.short, e.Name)
	for host, have := range e.has {
		at := slot{e.Name, host}
		_, wanted := slices.BinarySearch(e.Hosts, host)
		switch since := b.leaving[at]; {
		case wanted && !since.IsZero():
			delete(b.leaving, at)
			b.altered[e.Name] = true
		case !wanted && b.isStated(have):
			b.release(at)
		case !wanted && since.IsZero():
			b.leaving[at] = now
			b.altered[e.Name] = true
		}
	}
	for i, host := range e.Hosts {
		b.decideHost(e, host, i)
	}
}

// isStated says whether somebody states one of some addresses.
func (b *book) isStated(all []netip.Addr) bool {
	return slices.ContainsFunc(all, func(a netip.Addr) bool { return b.stated[a] > 0 })
}

// decideHost has a host keep what it has, adopts what its status says, and gives it a new address of each range of
// whose family it has none, where new ones are given.
func (b *book) decideHost(e *entry, host string, i int) {
	at := slot{e.Name, host}
	wrong := b.beyond(at, i)
	if wrong == "" {
		b.adopt(e, host)
	}
	lacking := b.lacking(e.has[host])
	if len(lacking) == 0 {
		return
	}
	if b.giver != self {
		b.short[e.Name] = true
		return
	}
	var fresh []netip.Addr
	if wrong == "" {
		fresh, wrong = b.choose(at, lacking)
	}
	if wrong != "" {
		b.short[e.Name] = true
		if e.problem == "" {
			e.problem = fmt.Sprintf("host %s has no automatic address of %s: %s", host, lacking[0], wrong)
		}
		return
	}
	b.give(e, host, fresh)
}

// beyond says which bound keeps the host with index i of a ServiceEntry from getting addresses; empty: none does.
func (b *book) beyond(at slot, i int) string {
	switch have := b.entries[at.name].has[at.host]; {
	case i >= mostOfEntry:
		return fmt.Sprintf("the first %d hosts of a ServiceEntry have automatic addresses", mostOfEntry)
	case have == nil && b.of[at.name.Namespace] >= MostOfNamespace:
		return fmt.Sprintf("namespace %s has automatic addresses for %d hosts already", at.name.Namespace, MostOfNamespace)
	}
	return ""
}

// adopt gives a host the addresses of its status that it may have, one of each family.
func (b *book) adopt(e *entry, host string) {
	at := slot{e.Name, host}
	for _, a := range e.Given[host] {
		same := func(o netip.Addr) bool { return o.Is4() == a.Is4() }
		has := slices.IndexFunc(e.has[host], same)
		if has >= 0 && (b.giver != others || slices.Contains(e.Given[host], e.has[host][has])) || !b.free(at, a) {
			continue
		}
		if by, taken := b.owners[a]; taken {
			b.drop(by, a)
			b.dirty[by.name] = true
		}
		if has >= 0 {
			b.drop(at, e.has[host][has])
		}
		b.give(e, host, []netip.Addr{a})
	}
}

// free says whether a host may adopt an address of its status: one of the ranges that no spec states and no host has.
// While others give addresses, a host gives up one that its own status does not name.
func (b *book) free(at slot, a netip.Addr) bool {
	by, taken := b.owners[a]
	if !b.within(a) || b.stated[a] > 0 {
		return false
	}
	return !taken || b.giver == others && by != at && !slices.Contains(b.entries[by.name].Given[by.host], a)
}

// give gives a host addresses beside those that it has, IPv4 before IPv6.
func (b *book) give(e *entry, host string, fresh []netip.Addr) {
	if e.has[host] == nil {
		b.of[e.Namespace]++
	}
	all := slices.Concat(e.has[host], fresh)
	slices.SortFunc(all, netip.Addr.Compare)
	e.has[host] = all
	for _, a := range fresh {
		b.owners[a] = slot{e.Name, host}
		b.count(a, 1)
	}
	b.altered[e.Name] = true
}

// drop takes one address back from a host.
func (b *book) drop(at slot, a netip.Addr) {
	e := b.entries[at.name]
	rest := slices.DeleteFunc(slices.Clone(e.has[at.host]), func(o netip.Addr) bool { return o == a })
	since, leaves := b.leaving[at]
	b.release(at)
	if len(rest) == 0 {
		return
	}
	if b.give(e, at.host, rest); leaves {
		b.leaving[at] = since
	}
}

// release takes back what a host has, if it has anything.
func (b *book) release(at slot) {
	delete(b.leaving, at)
	e := b.entries[at.name]
	have := e.has[at.host]
	if have == nil {
		return
	}
	delete(e.has, at.host)
	for _, a := range have {
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
		if have := e.has[host]; have != nil {
			out[host] = have
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
	maps.Copy(out, e.has)
	return out
}

// Problems is why ServiceEntries lack an address that are to have one, by name: so many at most, and how many more.
// While no new ones are given nothing is said.
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
