package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"navarch.io/navarch/deploy/testcluster/balancer"
	"navarch.io/navarch/deploy/testcluster/netns"
)

// balancers returns the addresses for Services of type LoadBalancer.
func (o Options) balancers() balancer.Ranges {
	if o.Balancers != nil {
		return o.Balancers
	}
	return balancer.Ranges{netip.MustParsePrefix(netns.BalancerCIDR), netip.MustParsePrefix(netns.BalancerCIDR6)}
}

// Link connects two clusters for as long as both run. Pods of each reach the other's Services of type LoadBalancer, and
// nothing else of the other. The ranges of both (Options.Balancers) must be disjoint. A cluster has one link at most.
// The error wraps ErrImpossible without root, names the overlap, or is that of the kernel.
func Link(a, b *Cluster) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: a link between clusters needs root", ErrImpossible)
	}
	ends := [2]*Cluster{a, b}
	var spaces [2]*netns.Space
	var ranges [2][]netip.Prefix
	for i, c := range ends {
		space, err := netns.OfProcess(c.PID())
		if err != nil {
			return err
		}
		defer space.Close()
		spaces[i], ranges[i] = space, c.options.balancers()
	}
	for _, r := range ranges[0] {
		for _, s := range ranges[1] {
			if r.Overlaps(s) {
				return fmt.Errorf("load balancers of both clusters have addresses of %s", r)
			}
		}
	}
	return netns.Link(spaces, ranges)
}

// Outer calls f in the outer namespace of the cluster: sockets that f makes are in it. The error reports that the
// namespace cannot be entered (without root), or is that of f.
func (c *Cluster) Outer(f func() error) error {
	space, err := netns.OfProcess(c.PID())
	if err != nil {
		return errors.Join(ErrImpossible, err)
	}
	defer space.Close()
	return space.Do(f)
}
