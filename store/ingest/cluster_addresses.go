package ingest

import (
	"net/netip"
	"sync"

	"navarch.io/navarch/store/model"
)

// clusterAddresses counts who has which address in the clusters: Services their ClusterIPs, Pods theirs. Addresses that configuration merely states
// (ServiceEntries, WorkloadEntries, EndpointSlices) are not among them: nobody makes another's address one of the cluster's. Safe for concurrent use.
type clusterAddresses struct {
	mu    sync.RWMutex
	users map[netip.Addr]int32
}

// count follows users of addresses that come, or go.
func (c *clusterAddresses) count(addresses []string, by int32) {
	if len(addresses) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		a = a.Unmap()
		if c.users[a] += by; c.users[a] <= 0 {
			delete(c.users, a)
		}
	}
}

// services follows the records of an object.
func (c *clusterAddresses) services(records []model.Record, by int32) {
	for _, r := range records {
		if svc, is := r.(*model.Service); is && svc.Key.Kind == model.KindService {
			c.count(svc.Spec.GetAddresses(), by)
		}
	}
}

func (c *clusterAddresses) has(a netip.Addr) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.users[a] > 0
}

// OfCluster says whether an address is a Service's or a Pod's of the clusters whose objects have been taken so far. Safe for concurrent use.
func (l *Loop) OfCluster(a netip.Addr) bool { return l.state.clusterAddresses.has(a) }
