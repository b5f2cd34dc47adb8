package allocate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
)

// Bounds on the number of automatic addresses that one namespace can occupy.
const (
	// mostOfEntry is the maximum number of hosts of one ServiceEntry that get automatic addresses. The CRD has the same
	// limit for the hosts of a ServiceEntry.
	mostOfEntry = 256
	// MostOfNamespace is the maximum number of hosts of one namespace that get automatic addresses. It is also the
	// maximum number of addresses that the specs of one namespace keep from being assigned.
	MostOfNamespace = 1 << 14
)

// Name identifies a ServiceEntry of the config cluster.
type Name struct{ Namespace, Name string }

// String returns "namespace/name".
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// compare orders names by namespace, then by name. The result is that of cmp.Compare.
func (n Name) compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// ServiceEntry contains the fields of a ServiceEntry that determine its automatic addresses. EntryAddresses has the
// hosts that need addresses, and the addresses in the spec and the status.
type ServiceEntry struct {
	Name
	Created int64 // creation, in Unix seconds (object.Object.CreatedAt); see entry.older
	normal.EntryAddresses
}

// Hosts maps each host to its automatic addresses, at most one of each family, IPv4 before IPv6. Its JSON is stored in
// etcd.
type Hosts map[string][]netip.Addr

// giver is the party that assigns new addresses at present.
type giver uint8

const (
	unknown giver = iota // another party may assign addresses, so no new address is assigned
	self                 // this process
	others               // istiod or another revision; their assignments are read from the status of objects
)

// book assigns addresses to hosts during one term of the leader. The sources of an assignment, by priority:
//
//  1. the addresses stored in etcd for the host;
//  2. one address of each family in the host's status, if the address is in the ranges and no other host has it;
//  3. a new address.
//
// While another party assigns addresses, the status has priority over the stored addresses. A host then gets an address
// of its status even if another host has it, unless the other host's status contains the address too.
//
// If a spec states an address of the ranges, this address is not assigned. A present host that already has the address
// keeps it, and store/normal ignores the address in the spec.
//
// book reads no clock, and is not safe for concurrent use.
type book struct {
	ranges   []netip.Prefix
	grace    time.Duration
	entries  map[Name]*entry
	owners   map[netip.Addr]slot // host of each assigned address
	stated   map[netip.Addr]int  // number of specs that state an address of the ranges
	used     []int               // number of used addresses (in owners or stated) of each range, by index of ranges
	of       map[string]int      // number of hosts with addresses, by namespace
	statedIn map[string]int      // number of stated addresses of the ranges, by namespace
	leaving  map[slot]time.Time  // removed hosts whose addresses are not released yet, with the time of removal
	changed  map[Name]bool       // ServiceEntries to decide in the next Step
	short    map[Name]bool       // ServiceEntries that lack an address
	altered  map[Name]bool       // ServiceEntries to return from the next Step
	giver    giver               // argument of the last Step
}

// slot identifies one host of one ServiceEntry.
type slot struct {
	name Name
	host string
}

// entry is one ServiceEntry with the assignments of its hosts.
type entry struct {
	ServiceEntry
	there    bool                    // the ServiceEntry exists; false if it is only stored in etcd, or was removed
	has      map[string][]netip.Addr // assigned addresses, by host
	reserved []netip.Addr            // addresses of the ranges that the spec states, within the namespace's bound
	problem  string                  // reason why a host lacks an address; empty while no new addresses are assigned
}

// newBook returns an empty book for the given ranges, at most one of each address family. Each host gets one address of
// each range. The addresses of a removed host are released after grace.
func newBook(grace time.Duration, ranges ...netip.Prefix) *book {
	return &book{ranges: ranges, used: make([]int, len(ranges)), grace: grace, entries: map[Name]*entry{},
		owners: map[netip.Addr]slot{}, stated: map[netip.Addr]int{}, of: map[string]int{}, statedIn: map[string]int{},
		leaving: map[slot]time.Time{}, changed: map[Name]bool{}, short: map[Name]bool{}, altered: map[Name]bool{}}
}

// Load adds the stored addresses of one ServiceEntry, before the first Put. Hosts are added in alphabetical order. A
// host is omitted if an earlier host of this or an earlier Load has any of its addresses. Addresses outside of the
// ranges are added too.
func (b *book) Load(name Name, hosts Hosts) {
	e := b.entry(name)
	assigned := func(a netip.Addr) bool { _, is := b.owners[a]; return is }
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if !slices.ContainsFunc(hosts[host], assigned) {
			b.assign(e, host, hosts[host])
		}
	}
	b.changed[name], b.altered[name] = true, true
}

// entry returns the entry of a ServiceEntry. If there is no entry, it adds one.
func (b *book) entry(name Name) *entry {
	e := b.entries[name]
	if e == nil {
		e = &entry{ServiceEntry: ServiceEntry{Name: name}, has: map[string][]netip.Addr{}}
		b.entries[name] = e
	}
	return e
}

// Put replaces the state of a ServiceEntry. The next Step assigns its addresses.
func (b *book) Put(now ServiceEntry) {
	e := b.entry(now.Name)
	b.restate(e, now.Stated)
	e.ServiceEntry, e.there = now, true
	b.changed[now.Name] = true
}

// Remove marks a ServiceEntry as deleted. It ignores an unknown name. The addresses of a host are released after grace,
// or in the next Step if a spec states one of them.
func (b *book) Remove(name Name) {
	if e := b.entries[name]; e != nil {
		b.restate(e, nil)
		e.ServiceEntry, e.there = ServiceEntry{Name: name}, false
		b.changed[name] = true
	}
}

// retry marks all ServiceEntries that lack an address, to be decided again.
func (b *book) retry() {
	for name := range b.short {
		b.changed[name] = true
	}
}

// Step assigns and releases addresses. The argument for party is the one that assigns new addresses at present. If it
// is self, hosts that lack an address get new addresses. altered has the sorted names of the ServiceEntries for which
// the result of Addresses or Kept has changed since the last Step. It also has those that Load added, and may have
// unchanged ones. wait is the time after which Step must be called again even without changes; 0: no need.
func (b *book) Step(now time.Time, party giver) (altered []Name, wait time.Duration) {
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
	if party != b.giver {
		b.retry()
	}
	b.giver = party
	var decided []Name
	for len(b.changed) > 0 {
		ordered := slices.SortedFunc(maps.Keys(b.changed), func(x, y Name) int { return b.entries[x].older(b.entries[y]) })
		clear(b.changed)
		for _, name := range ordered {
			b.decide(b.entries[name], now)
		}
		decided = append(decided, ordered...)
	}
	if len(b.leaving) > 0 && (wait == 0 || wait > b.grace) {
		wait = b.grace
	}
	altered = slices.SortedFunc(maps.Keys(b.altered), Name.compare)
	for _, name := range append(decided, altered...) {
		if e := b.entries[name]; e != nil && !e.there && len(e.has) == 0 {
			delete(b.entries, name)
		}
	}
	clear(b.altered)
	return altered, wait
}

// older orders ServiceEntries by age, the oldest first, then by name, as cmp.Compare does. If two ServiceEntries have
// the same address in their status, and the address is stored for neither of them, the older one gets it, as in istiod.
func (e *entry) older(o *entry) int {
	return cmp.Or(model.CompareCreated(e.Created, o.Created), e.Name.compare(o.Name))
}

// decide assigns addresses to the hosts of one ServiceEntry. A removed host keeps its addresses for the time
// book.grace, unless a spec states one of them. The time ends if the host exists again.
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

// isStated reports whether the spec of any ServiceEntry states one of the addresses.
func (b *book) isStated(all []netip.Addr) bool {
	return slices.ContainsFunc(all, func(a netip.Addr) bool { return b.stated[a] > 0 })
}

// decideHost assigns the addresses of the host with index i. The host retains its addresses, and adopts addresses of
// its status (adopt). If this process assigns addresses, the host also gets a new address from the range of each
// address family that it still lacks. If one of these ranges has no unused address, the host gets no new address at
// all.
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
	b.assign(e, host, fresh)
}

// beyond returns a text that names the bound that excludes the host with index i of a ServiceEntry. The text is empty
// if the host is within the bounds.
func (b *book) beyond(at slot, i int) string {
	switch have := b.entries[at.name].has[at.host]; {
	case i >= mostOfEntry:
		return fmt.Sprintf("only the first %d hosts of a ServiceEntry get automatic addresses", mostOfEntry)
	case have == nil && b.of[at.name.Namespace] >= MostOfNamespace:
		return fmt.Sprintf("namespace %s has automatic addresses for %d hosts already", at.name.Namespace, MostOfNamespace)
	}
	return ""
}

// adopt assigns addresses of a host's status to the host, if the method free permits them. A host gets one address of
// each family.
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
			b.changed[by.name] = true
		}
		if has >= 0 {
			b.drop(at, e.has[host][has])
		}
		b.assign(e, host, []netip.Addr{a})
	}
}

// free reports whether a host may adopt an address of its status. The address must be in the ranges, no spec may state
// it, and no host may have it. While another party assigns addresses, the address may belong to another host whose own
// status does not contain it.
func (b *book) free(at slot, a netip.Addr) bool {
	by, taken := b.owners[a]
	if !b.within(a) || b.stated[a] > 0 {
		return false
	}
	return !taken || b.giver == others && by != at && !slices.Contains(b.entries[by.name].Given[by.host], a)
}

// assign adds addresses to a host. The host's addresses stay sorted, IPv4 before IPv6.
func (b *book) assign(e *entry, host string, fresh []netip.Addr) {
	if e.has[host] == nil {
		b.of[e.Namespace]++
	}
	all := slices.Concat(e.has[host], fresh)
	slices.SortFunc(all, netip.Addr.Compare)
	e.has[host] = all
	for _, a := range fresh {
		if b.owners[a] = (slot{e.Name, host}); b.stated[a] == 0 {
			b.count(a, 1)
		}
	}
	b.altered[e.Name] = true
}

// drop releases one address of a host.
func (b *book) drop(at slot, a netip.Addr) {
	e := b.entries[at.name]
	rest := slices.DeleteFunc(slices.Clone(e.has[at.host]), func(o netip.Addr) bool { return o == a })
	since, leaves := b.leaving[at]
	b.release(at)
	if len(rest) == 0 {
		return
	}
	if b.assign(e, at.host, rest); leaves {
		b.leaving[at] = since
	}
}

// release releases all addresses of a host.
func (b *book) release(at slot) {
	delete(b.leaving, at)
	e := b.entries[at.name]
	have := e.has[at.host]
	if have == nil {
		return
	}
	delete(e.has, at.host)
	for _, a := range have {
		if delete(b.owners, a); b.stated[a] == 0 {
			b.count(a, -1)
		}
	}
	if b.of[at.name.Namespace]--; b.of[at.name.Namespace] == 0 {
		delete(b.of, at.name.Namespace)
	}
	b.altered[at.name] = true
}

// Addresses returns the addresses of the present hosts of a ServiceEntry. The map is empty if no host has an address,
// and never nil. The caller must not change the lists of addresses.
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

// Kept returns the addresses of a ServiceEntry to store in etcd. They include the addresses of removed hosts that are
// not released yet. The map may be empty, and is never nil. The caller must not change the lists of addresses.
func (b *book) Kept(name Name) Hosts {
	e, out := b.entries[name], Hosts{}
	if e == nil {
		return out
	}
	maps.Copy(out, e.has)
	return out
}

// Problems returns one problem for each ServiceEntry that lacks an address, sorted by name. It returns at most limit
// such problems. If there are more ServiceEntries, one additional problem states the number of the others. The result
// is nil if there are no problems, and while no new addresses are assigned.
func (b *book) Problems(limit int) (all []Problem) {
	for _, name := range slices.SortedFunc(maps.Keys(b.short), Name.compare) {
		if text := b.entries[name].problem; text != "" {
			all = append(all, Problem{name, text})
		}
	}
	if more := len(all) - limit; more > 0 {
		all = append(all[:limit], Problem{Message: fmt.Sprintf("%d more ServiceEntries lack automatic addresses", more)})
	}
	return all
}
