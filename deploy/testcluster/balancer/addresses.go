package balancer

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ranges has the addresses for Services, at most one range of each family.
type Ranges []netip.Prefix

// of returns the range of a family. It returns false without one.
func (r Ranges) of(family corev1.IPFamily) (netip.Prefix, bool) {
	i := slices.IndexFunc(r, func(p netip.Prefix) bool { return p.Addr().Is4() == (family == corev1.IPv4Protocol) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return r[i], true
}

func (r Ranges) contain(a netip.Addr) bool {
	return slices.ContainsFunc(r, func(p netip.Prefix) bool { return p.Contains(a) })
}

// table maps each Service of type LoadBalancer to its addresses. It is the truth: a Service that was just read may
// lack the status that was written a moment ago.
type table struct {
	ranges Ranges
	held   map[types.UID][]netip.Addr
	used   map[netip.Addr]types.UID
	next   map[netip.Prefix]netip.Addr // the first candidate: an address rests after its Service has gone
}

func newTable(ranges Ranges) *table {
	return &table{ranges: ranges, held: map[types.UID][]netip.Addr{}, used: map[netip.Addr]types.UID{}, next: map[netip.Prefix]netip.Addr{}}
}

// wants reports whether this controller is the load balancer of a Service.
func wants(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
}

// assign returns copies of the Services whose status has to be written, the oldest first. pending names those
// without an address that they need.
func (t *table) assign(services []*corev1.Service) (updates, pending []*corev1.Service) {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	t.release(services)
	for _, s := range services {
		t.adopt(s)
	}
	for _, s := range services {
		if !wants(s) {
			// The API server keeps the status of a Service whose type has changed.
			if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) > 0 {
				updates = append(updates, withAddresses(s, nil))
			}
			continue
		}
		if !t.fill(s) {
			pending = append(pending, s)
		}
		if held := t.held[s.UID]; !slices.Equal(held, addressesOf(s)) {
			updates = append(updates, withAddresses(s, held))
		}
	}
	return updates, pending
}

// release frees the addresses of Services that are gone, or no longer want them.
func (t *table) release(services []*corev1.Service) {
	keep := map[types.UID]bool{}
	for _, s := range services {
		keep[s.UID] = wants(s)
	}
	for uid, held := range t.held {
		if !keep[uid] {
			for _, a := range held {
				delete(t.used, a)
			}
			delete(t.held, uid)
		}
	}
}

// adopt takes over the addresses that a Service has by its status, at the first sight of it.
func (t *table) adopt(s *corev1.Service) {
	if _, known := t.held[s.UID]; known || !wants(s) {
		return
	}
	for _, a := range addressesOf(s) {
		t.hold(s.UID, a)
	}
}

func (t *table) hold(uid types.UID, a netip.Addr) bool {
	if _, taken := t.used[a]; taken || !t.ranges.contain(a) {
		return false
	}
	t.used[a], t.held[uid] = uid, append(t.held[uid], a)
	return true
}

// fill gives a Service an address of each of its families. It returns false if one is missing.
func (t *table) fill(s *corev1.Service) bool {
	families := s.Spec.IPFamilies
	t.held[s.UID] = slices.DeleteFunc(t.held[s.UID], func(a netip.Addr) bool {
		stale := !slices.Contains(families, familyOf(a)) || a.String() != s.Spec.LoadBalancerIP && sameFamily(a, s.Spec.LoadBalancerIP)
		if stale {
			delete(t.used, a)
		}
		return stale
	})
	whole := true
	for _, family := range families {
		if !slices.ContainsFunc(t.held[s.UID], func(a netip.Addr) bool { return familyOf(a) == family }) {
			a, found := t.choose(s, family)
			whole = found && t.hold(s.UID, a) && whole
		}
	}
	return whole
}

// choose returns the requested address, else the next free one of the family's range.
func (t *table) choose(s *corev1.Service, family corev1.IPFamily) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s.Spec.LoadBalancerIP); err == nil && familyOf(a) == family {
		return a, true
	}
	within, is := t.ranges.of(family)
	if !is {
		return netip.Addr{}, false
	}
	first := within.Masked().Addr().Next() // the first address of a range is that of its network
	start, again := t.next[within]
	if !again || !within.Contains(start) {
		start = first
	}
	for a := start; ; {
		if _, taken := t.used[a]; !taken {
			t.next[within] = a.Next()
			return a, true
		}
		if a = a.Next(); !within.Contains(a) {
			a = first
		}
		if a == start {
			return netip.Addr{}, false
		}
	}
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func sameFamily(a netip.Addr, text string) bool {
	b, err := netip.ParseAddr(text)
	return err == nil && a.Is4() == b.Is4()
}

// addressesOf returns the addresses in a Service's status.
func addressesOf(s *corev1.Service) (all []netip.Addr) {
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(ingress.IP); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// withAddresses returns a copy of a Service with these addresses in its status.
func withAddresses(s *corev1.Service, addresses []netip.Addr) *corev1.Service {
	out := s.DeepCopy()
	out.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	for _, a := range addresses {
		out.Status.LoadBalancer.Ingress = append(out.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	return out
}
