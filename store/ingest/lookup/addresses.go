package lookup

import (
	"net/netip"
	"sync"
)

// Addresses counts the users of each address in the clusters: Services their ClusterIPs, Pods theirs. Addresses that
// configuration merely states (ServiceEntries, WorkloadEntries, EndpointSlices) do not count: no tenant makes another's
// address one of the cluster's. Safe for concurrent use.
type Addresses struct {
	mu    sync.RWMutex
	users map[netip.Addr]int32
}

// Addresses returns the addresses of the clusters.
func (t *Table[E]) Addresses() *Addresses { return t.index.addresses }

// Count follows users of addresses that come (1), or go (-1).
func (a *Addresses) Count(addresses []string, by int32) {
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
		if a.users[address] += by; a.users[address] <= 0 {
			delete(a.users, address)
		}
	}
}

// Has reports whether a Service or a Pod has an address.
func (a *Addresses) Has(address netip.Addr) bool { return a.usersOf(address) > 0 }

// usersOf counts the Services and Pods with an address.
func (a *Addresses) usersOf(address netip.Addr) int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return int(a.users[address])
}

// within returns an address of a Service or a Pod in a network, or the zero Addr.
func (a *Addresses) within(network netip.Prefix) netip.Addr {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for address := range a.users {
		if network.Contains(address) {
			return address
		}
	}
	return netip.Addr{}
}
