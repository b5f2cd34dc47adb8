package validate

import (
	"net/netip"
	"slices"

	"navarch.io/navarch/store/model"
)

// discreet is the lookup for a proposal (a previewed change) whose author may see the objects of only one tenant. It
// hides the private objects of other tenants. These are Pods, and Services and ServiceEntries that are not exported to
// the namespace of the proposed object. Without isolation of tenants, private objects are left out. With isolation they
// are included without names, because the proposed object may have to be refused because of them.
type discreet struct {
	proposalLookup
	namespace string
	isolated  bool
}

// private reports whether a service belongs to another tenant and is not exported to the namespace.
func (l discreet) private(s *model.Service) bool {
	if slices.Contains(s.Spec.GetExportTo(), "*") || slices.Contains(s.Spec.GetExportTo(), l.namespace) {
		return false
	}
	own, _ := l.Tenant(l.namespace)
	of, _ := l.Tenant(s.Key.Namespace)
	return own != of
}

// shown returns the given services without the private ones. With isolation, it replaces the private ones with copies
// that have no name.
func (l discreet) shown(all []*model.Service) (shown []*model.Service) {
	for _, s := range all {
		switch {
		case !l.private(s):
			shown = append(shown, s)
		case l.isolated:
			nameless := &model.Service{Head: s.Head, Spec: s.Spec}
			nameless.Key.Name = ""
			shown = append(shown, nameless)
		}
	}
	return shown
}

// Services implements normal.Owners: it returns the Services and ServiceEntries with a host. Private ones have no name,
// or are left out without isolation.
func (l discreet) Services(host string) []*model.Service {
	return l.shown(l.proposalLookup.Services(host))
}

// Below implements normal.Owners: it returns the ServiceEntries with a host that a wildcard covers. Private ones have
// no name, or are left out without isolation.
func (l discreet) Below(wildcard string) []*model.Service {
	return l.shown(l.proposalLookup.Below(wildcard))
}

// At implements normal.Owners: it returns the Services with an address, and reports whether a Pod has the address.
// Private Services have no name, or are left out without isolation. Without isolation no Pod is reported.
func (l discreet) At(a netip.Addr) (services []*model.Service, pod bool) {
	services, pod = l.proposalLookup.At(a)
	return l.shown(services), pod && l.isolated
}

// Within implements normal.Owners: it returns the lowest address of a Service or a Pod in a network. Without such an
// address, and without isolation, the result is the zero Addr.
func (l discreet) Within(network netip.Prefix) netip.Addr {
	if !l.isolated {
		return netip.Addr{}
	}
	return l.proposalLookup.Within(network)
}
