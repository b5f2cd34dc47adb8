package validate

import (
	"net/netip"
	"slices"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// owners implements normal.Owners by a snapshot.
type owners struct {
	known   *mirror.Snapshot
	tenants Tenants
}

// ownersOf returns the owners at a snapshot; nil is an empty snapshot.
func ownersOf(known *mirror.Snapshot, tenants Tenants) owners {
	if known == nil {
		known = mirror.Empty()
	}
	return owners{known, tenants}
}

// Tenant implements normal.Owners.
func (o owners) Tenant(namespace string) (string, bool) {
	if o.tenants == nil {
		return namespace, false
	}
	return o.tenants(namespace)
}

// Services implements normal.Owners.
func (o owners) Services(host string) (all []*model.Service) {
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range o.known.ByHost(kind, host) {
			all = append(all, r.(*model.Service))
		}
	}
	return all
}

// Below implements normal.Owners.
func (o owners) Below(wildcard string) (all []*model.Service) {
	for r := range o.known.All(model.KindServiceEntry) {
		s := r.(*model.Service)
		if slices.ContainsFunc(s.Spec.GetHosts(), func(host string) bool { return model.Covers(wildcard, host) }) {
			all = append(all, s)
		}
	}
	return all
}

// At implements normal.Owners.
func (o owners) At(a netip.Addr) (services []*model.Service, pod bool) {
	of := netip.PrefixFrom(a, a.BitLen())
	for r := range o.known.All(model.KindService) {
		if s := r.(*model.Service); within(of, s.Spec.GetAddresses()...).IsValid() {
			services = append(services, s)
		}
	}
	return services, o.podWithin(of, "").IsValid()
}

// OwnPod implements normal.Owners.
func (o owners) OwnPod(of object.ID, a netip.Addr) bool {
	return o.podWithin(netip.PrefixFrom(a, a.BitLen()), of.Namespace).IsValid()
}

// Within implements normal.Owners.
func (o owners) Within(network netip.Prefix) netip.Addr {
	for r := range o.known.All(model.KindService) {
		if a := within(network, r.(*model.Service).Spec.GetAddresses()...); a.IsValid() {
			return a
		}
	}
	return o.podWithin(network, "")
}

// podWithin returns an address of a Pod in a network, or the zero Addr. With a namespace only its Pods count.
func (o owners) podWithin(network netip.Prefix, namespace string) netip.Addr {
	for r := range o.known.All(model.KindWorkload) {
		w := r.(*model.Workload)
		if w.Spec.FromEntry() || namespace != "" && w.Key.Namespace != namespace {
			continue
		}
		if a := within(network, w.Spec.GetEndpoint().GetAddress()); a.IsValid() {
			return a
		}
	}
	return netip.Addr{}
}

// within returns the first address in a network, or the zero Addr. Texts that are no IP addresses are skipped.
func within(network netip.Prefix, addresses ...string) netip.Addr {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && network.Contains(a.Unmap()) {
			return a.Unmap()
		}
	}
	return netip.Addr{}
}
