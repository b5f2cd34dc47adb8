package lookup

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// owners finds the Services and ServiceEntries that own a host, and the Services that own an address.
type owners struct {
	hosts     map[string][]*model.Service     // services with a host, the oldest first
	endings   map[string]map[string]struct{}  // hosts of ServiceEntries, by each ending (endingsOf)
	addresses map[netip.Addr][]*model.Service // Services with an address, the oldest first
	networks  map[netip.Prefix]bool           // networks that objects look up, masked
	asked     int                             // number of addresses and networks that objects look up
	labels    map[string]string               // values of isolation.TenantLabel, by namespace
}

func newOwners() owners {
	return owners{hosts: map[string][]*model.Service{}, endings: map[string]map[string]struct{}{},
		addresses: map[netip.Addr][]*model.Service{}, networks: map[netip.Prefix]bool{}, labels: map[string]string{}}
}

// count is called with 1 when the first object looks up a name, and with -1 when no object looks it up any more. Names
// that are not an address or a network are ignored.
func (o *owners) count(name object.ID, by int) {
	if !normal.AsksAddress(name) {
		return
	}
	o.asked += by
	if network, is := normal.NetworkOf(name); is {
		if o.networks[network] = true; by < 0 {
			delete(o.networks, network)
		}
	}
}

// Tenant implements normal.Lookup. It returns the tenant of a namespace by the value of Table.Label
// (isolation.TenantOf). The second result is always true, because the labels are known.
func (t *Table[E]) Tenant(namespace string) (string, bool) {
	return isolation.TenantOf(namespace, t.index.owners.labels[namespace]), true
}

// Label sets the value of isolation.TenantLabel of a namespace; an empty value removes the label. The objects that
// looked up the namespace's tenant are marked, even if the value is the previous one.
func (t *Table[E]) Label(namespace, value string) {
	if t.index.owners.labels[namespace] = value; value == "" {
		delete(t.index.owners.labels, namespace)
	}
	t.MarkReaders(normal.TenantID(namespace))
}

// Services implements normal.Lookup. It returns the Services and ServiceEntries with exactly this host, the oldest
// first. The result is nil if there are no such objects. The caller must not change the list.
func (t *Table[E]) Services(host string) []*model.Service { return t.index.owners.hosts[host] }

// Below implements normal.Lookup. It returns the ServiceEntries with a host that a wildcard covers, in no order. The
// result is empty if there are no such ServiceEntries. wildcard must begin with "*". A ServiceEntry with several such
// hosts is returned several times. The caller owns the list.
func (t *Table[E]) Below(wildcard string) (all []*model.Service) {
	for host := range t.index.owners.ending(wildcard[1:]) {
		if model.Covers(wildcard, host) {
			all = append(all, t.index.owners.hosts[host]...)
		}
	}
	return slices.DeleteFunc(all, func(s *model.Service) bool { return s.Key.Kind != model.KindServiceEntry })
}

// At implements normal.Lookup. It returns the Services with an address, the oldest first, or nil. It also reports
// whether a Pod that has not ended has the address. The caller must unmap IPv4-mapped IPv6 addresses, and must not
// change the list.
func (t *Table[E]) At(a netip.Addr) (services []*model.Service, pod bool) {
	services = t.index.owners.addresses[a]
	return services, t.index.addresses.usersOf(a) > len(services)
}

// OwnPod implements normal.Lookup. It reports whether a Pod in the namespace and origin of an object has an address.
// The Pod must not have ended. As with PodAt, call OwnPod within Renew only, and pass normal.PodAtID of the arguments
// to SetRefs.
func (t *Table[E]) OwnPod(of object.ID, a netip.Addr) bool {
	return t.PodAt(normal.PodAtID(of, a.String())) != nil
}

// Within implements normal.Lookup. It returns the lowest address of a Service or Pod in a network; the zero Addr
// without such an address.
func (t *Table[E]) Within(network netip.Prefix) netip.Addr { return t.index.addresses.within(network) }

// SetServices replaces the Service or ServiceEntry in the records of an object. before are the previous records of the
// object, and after are the present ones. If the service is added or removed, or if its content or creation time
// differs, the objects that looked up its hosts or addresses are marked.
func (t *Table[E]) SetServices(before, after []model.Record) {
	was, is := serviceOf(before), serviceOf(after)
	if was == is {
		return
	}
	moved := was == nil || is == nil || was.Hash != is.Hash || was.Created != is.Created
	t.setService(was, false, moved)
	t.setService(is, true, moved)
}

// serviceOf returns the Service or ServiceEntry among the records of an object, or nil.
func serviceOf(records []model.Record) *model.Service {
	for _, r := range records {
		if s, is := r.(*model.Service); is {
			return s
		}
	}
	return nil
}

// setService adds a service if the parameter present is true. Otherwise it removes the service. If moved is true, the
// objects that looked up the hosts or addresses of the service are marked.
func (t *Table[E]) setService(s *model.Service, present, moved bool) {
	if s == nil {
		return
	}
	for _, host := range s.Spec.GetHosts() {
		if t.index.owners.setHost(host, s, present); moved {
			t.markHost(host)
		}
	}
	if s.Key.Kind != model.KindService {
		return
	}
	by := int32(1)
	if !present {
		by = -1
	}
	t.index.addresses.Count(s.Spec.GetAddresses(), by)
	for _, text := range s.Spec.GetAddresses() {
		if a, err := netip.ParseAddr(text); err == nil {
			set(t.index.owners.addresses, a.Unmap(), s, present)
		}
	}
	if moved {
		t.index.owners.names(s.Spec.GetAddresses(), t.MarkReaders)
	}
}

// maxEndings is the maximum number of endings by which one host is indexed.
const maxEndings = 8

// endingsOf yields the suffixes of a host that begin with a dot, the shortest first, at most maxEndings.
func endingsOf(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		at := len(host)
		for range maxEndings {
			if at = strings.LastIndexByte(host[:at], '.'); at < 0 || !yield(host[at:]) {
				return
			}
		}
	}
}

// ending yields all hosts of ServiceEntries with the given ending, and possibly further hosts. It yields the hosts that
// share the longest indexed part of the ending. If the ending has no dot, it yields all hosts, also those of Services.
func (o *owners) ending(ending string) iter.Seq[string] {
	longest := ""
	for one := range endingsOf(ending) {
		longest = one
	}
	if longest == "" {
		return maps.Keys(o.hosts)
	}
	return maps.Keys(o.endings[longest])
}

// setHost adds a service to the services of a host if the parameter present is true. Otherwise it removes the service
// from them.
func (o *owners) setHost(host string, s *model.Service, present bool) {
	set(o.hosts, host, s, present)
	for ending := range endingsOf(host) {
		switch hosts := o.endings[ending]; {
		case len(o.hosts[host]) == 0:
			if delete(hosts, host); len(hosts) == 0 {
				delete(o.endings, ending)
			}
		case !present || s.Key.Kind != model.KindServiceEntry:
		case hosts == nil:
			o.endings[ending] = map[string]struct{}{host: {}}
		default:
			hosts[host] = struct{}{}
		}
	}
}

// set adds a service to the services of a key if the parameter present is true. Otherwise it removes the service from
// them. The oldest service is first.
func set[K comparable](of map[K][]*model.Service, key K, s *model.Service, present bool) {
	all := of[key]
	at, has := slices.BinarySearchFunc(all, s, func(a, b *model.Service) int { return a.Older(&b.Head) })
	switch {
	case present && !has:
		all = slices.Insert(all, at, s)
	case has && !present:
		all = slices.Delete(all, at, at+1)
	}
	if of[key] = all; len(all) == 0 {
		delete(of, key)
	}
}

func (t *Table[E]) markHost(host string) {
	t.MarkReaders(normal.HostID(host))
	for wildcard := range model.Wildcards(host) {
		t.MarkReaders(normal.BelowID(wildcard))
	}
}

// names calls mark with each name under which objects look up the owners of the given addresses.
func (o *owners) names(addresses []string, mark func(name object.ID)) {
	if o.asked == 0 {
		return
	}
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		a = a.Unmap()
		mark(normal.AddressID(a))
		for bits := 0; bits <= a.BitLen() && len(o.networks) > 0; bits++ {
			if network, _ := a.Prefix(bits); o.networks[network] {
				mark(normal.NetworkID(network))
			}
		}
	}
}
