package lookup

import (
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// owners finds who has a host or an address.
type owners struct {
	hosts     map[string][]*model.Service     // the oldest first
	addresses map[netip.Addr][]*model.Service // of Services, the oldest first
	networks  map[netip.Prefix]bool           // that objects look up
	asked     int                             // addresses and networks that objects look up
	labels    map[string]string               // values of isolation.TenantLabel, by namespace
}

func newOwners() owners {
	return owners{hosts: map[string][]*model.Service{}, addresses: map[netip.Addr][]*model.Service{},
		networks: map[netip.Prefix]bool{}, labels: map[string]string{}}
}

// count follows addresses and networks that are looked up from now on, or by no object any more.
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

// Tenant implements normal.Lookup.
func (t *Table[E]) Tenant(namespace string) (string, bool) {
	return isolation.TenantOf(namespace, t.index.owners.labels[namespace]), true
}

// Label sets the value of isolation.TenantLabel of a namespace; an empty value removes it. Readers of its tenant are marked.
func (t *Table[E]) Label(namespace, value string) {
	if t.index.owners.labels[namespace] = value; value == "" {
		delete(t.index.owners.labels, namespace)
	}
	t.MarkReaders(normal.TenantID(namespace))
}

// Services implements normal.Lookup.
func (t *Table[E]) Services(host string) []*model.Service { return t.index.owners.hosts[host] }

// Below implements normal.Lookup. It visits all hosts: few VirtualServices have a wildcard for hosts outside of the
// cluster.
func (t *Table[E]) Below(wildcard string) (all []*model.Service) {
	for host, services := range t.index.owners.hosts {
		if strings.HasSuffix(host, wildcard[1:]) && host != wildcard {
			all = append(all, services...)
		}
	}
	return slices.DeleteFunc(all, func(s *model.Service) bool { return s.Key.Kind != model.KindServiceEntry })
}

// At implements normal.Lookup.
func (t *Table[E]) At(a netip.Addr) (services []*model.Service, pod bool) {
	services = t.index.owners.addresses[a]
	return services, t.index.addresses.usersOf(a) > len(services)
}

// OwnPod implements normal.Lookup.
func (t *Table[E]) OwnPod(of object.ID, a netip.Addr) bool {
	return t.PodAt(normal.PodAtID(of, a.String())) != nil
}

// Within implements normal.Lookup. It visits all addresses: few ServiceEntries state networks.
func (t *Table[E]) Within(network netip.Prefix) netip.Addr { return t.index.addresses.within(network) }

// SetServices follows the Service or ServiceEntry among the records of an object. Readers of its hosts and addresses
// are marked if it changed.
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

// setService adds a service, or removes it.
func (t *Table[E]) setService(s *model.Service, there, moved bool) {
	if s == nil {
		return
	}
	for _, host := range s.Spec.GetHosts() {
		if set(t.index.owners.hosts, host, s, there); moved {
			t.markHost(host)
		}
	}
	if s.Key.Kind != model.KindService {
		return
	}
	by := int32(1)
	if !there {
		by = -1
	}
	t.index.addresses.Count(s.Spec.GetAddresses(), by)
	for _, text := range s.Spec.GetAddresses() {
		if a, err := netip.ParseAddr(text); err == nil {
			set(t.index.owners.addresses, a.Unmap(), s, there)
		}
	}
	if moved {
		t.index.owners.names(s.Spec.GetAddresses(), t.MarkReaders)
	}
}

// set adds a service to those of a key, or removes it.
func set[K comparable](of map[K][]*model.Service, key K, s *model.Service, there bool) {
	all := of[key]
	at, has := slices.BinarySearchFunc(all, s, func(a, b *model.Service) int { return a.Older(&b.Head) })
	switch {
	case there && !has:
		all = slices.Insert(all, at, s)
	case has && !there:
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

// names marks the names by which the owners of addresses are looked up.
func (o *owners) names(addresses []string, mark func(name object.ID)) {
	if o.asked == 0 {
		return
	}
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		mark(normal.AddressID(a.Unmap()))
		for network := range o.networks {
			if network.Contains(a.Unmap()) {
				mark(normal.NetworkID(network))
			}
		}
	}
}
