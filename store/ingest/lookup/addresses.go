package lookup

import (
	"net/netip"
	"sync"
)

// Addresses counts the users of each IP address in the clusters: Services with their ClusterIPs, and Pods. Addresses in
// ServiceEntries, WorkloadEntries and EndpointSlices do not count, because a tenant may state any address there.
// Addresses is safe for concurrent use. Table.Addresses returns it.
type Addresses struct {
	mu    sync.RWMutex
	users map[netip.Addr]int32
	order ordered // keys of users
}

// Addresses returns the addresses of the clusters' Services and Pods. The result is shared, and stays current while the
// Table changes.
func (t *Table[E]) Addresses() *Addresses { return t.index.addresses }

// Count adds delta to the number of users of each address. The parameter delta is 1 for a new user, and -1 for a
// removed one. Texts that are not IP addresses are ignored.
func (a *Addresses) Count(addresses []string, delta int32) {
	if len(addresses) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		address = address.Unmap()
		had := a.users[address] > 0
		if a.users[address] += delta; a.users[address] <= 0 {
			delete(a.users, address)
		}
		switch has := a.users[address] > 0; {
		case has && !had:
			a.order.add(address)
		case had && !has:
			a.order.remove(address)
		}
	}
}

// Has reports whether a Service or a Pod has an address. It returns false for IPv4-mapped IPv6 addresses, which the
// caller must unmap.
func (a *Addresses) Has(address netip.Addr) bool { return a.usersOf(address) > 0 }

// usersOf counts the Services and Pods with an address.
func (a *Addresses) usersOf(address netip.Addr) int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return int(a.users[address])
}

// within returns the lowest address of a Service or a Pod in a network, or the zero Addr. It uses a binary search over
// all addresses, because an object of a tenant may state 100,000 networks.
func (a *Addresses) within(network netip.Prefix) netip.Addr {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if found := a.order.from(network.Masked().Addr()); found.IsValid() && network.Contains(found) {
		return found
	}
	return netip.Addr{}
}
