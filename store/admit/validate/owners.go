package validate

import (
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// owners implements normal.Owners by a snapshot.
type owners struct {
	known   *mirror.Snapshot
	tenants Tenants
}

// ownersOf makes one; without a snapshot nobody has anything.
func ownersOf(known *mirror.Snapshot, tenants Tenants) owners {
	if known == nil {
		known = mirror.Empty()
	}
	return owners{known, tenants}
}

func (o owners) Tenant(namespace string) (string, bool) {
	if o.tenants == nil {
		return namespace, false
	}
	return o.tenants(namespace)
}

func (o owners) Services(host string) (all []*model.Service) {
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range o.known.ByHost(kind, host) {
			all = append(all, r.(*model.Service))
		}
	}
	return all
}

func (o owners) Below(wildcard string) (all []*model.Service) {
	for r := range o.known.All(model.KindServiceEntry) {
		s := r.(*model.Service)
		if slices.ContainsFunc(s.Spec.GetHosts(), func(host string) bool {
			return strings.HasSuffix(host, wildcard[1:]) &&
				host != wildcard
		}) {
			all = append(all, s)
		}
	}
	return all
}

func (o owners) At(a netip.Addr) (services []*model.Service, pod bool) {
	of := netip.PrefixFrom(a, a.BitLen())
	for r := range o.known.All(model.KindService) {
		if s := r.(*model.Service); within(of, s.Spec.GetAddresses()...).IsValid() {
			services = append(services, s)
		}
	}
	return services, o.podWithin(of, "").IsValid()
}

func (o owners) OwnPod(of object.ID, a netip.Addr) bool {
	return o.podWithin(netip.PrefixFrom(a, a.BitLen()), of.Namespace).IsValid()
}

func (o owners) Within(network netip.Prefix) netip.Addr {
	for r := range o.known.All(model.KindService) {
		if a := within(network, r.(*model.Service).Spec.GetAddresses()...); a.IsValid() {
			return a
		}
	}
	return o.podWithin(network, "")
}

// podWithin is the address of a Pod in a network; the zero Addr if no address is. namespace: of its Pods alone.
func (o owners) podWithin(network netip.Prefix, namespace string) netip.Addr {
	for r := range o.known.All(model.KindWorkload) {
		if key := r.Meta().Key; strings.HasPrefix(key.Name, model.WorkloadEntryPrefix) || namespace != "" && key.Namespace != namespace {
			continue
		}
		if a := within(network, r.(*model.Workload).Spec.GetEndpoint().GetAddress()); a.IsValid() {
			return a
		}
	}
	return netip.Addr{}
}

// within is the first of some addresses that is in a network.
func within(network netip.Prefix, addresses ...string) netip.Addr {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && network.Contains(a.Unmap()) {
			return a.Unmap()
		}
	}
	return netip.Addr{}
}
