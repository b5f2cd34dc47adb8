package sidecar

import (
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// namesOf returns the names that requests may use for a host: its own name, its short names as a Kubernetes service,
// and its own name with a final dot. The dot marks an absolute name in DNS (RFC 1034 section 3.1), which clients send
// too. An IP address has no name with a dot.
func (s *scope) namesOf(name string) []string {
	out := append([]string{name}, host.ShortNames(name, s.key.Namespace, s.key.Domain)...)
	if _, err := netip.ParseAddr(name); err != nil {
		out = append(out, name+".")
	}
	return out
}

// domainsOf returns the domains of a host with a service at a port. These are the names of namesOf, the names of the
// host's aliases, and its virtual addresses. A headless Kubernetes Service also has a wildcard below each of its own
// names, for its Pods.
func (s *scope) domainsOf(h *host.Host, port uint32) []string {
	name, svc := h.Name, h.Service
	out := s.namesOf(name)
	if svc.Spec.GetHeadless() && svc.Key.Kind == model.KindService {
		for _, d := range slices.Clone(out) {
			out = append(out, "*."+d)
		}
	}
	for _, alias := range s.hosts.Aliases(name) {
		out = append(out, s.namesOf(alias)...)
	}
	known := make(map[string]bool, len(out))
	for _, d := range out {
		known[d] = true
	}
	s.hosts.AddressesAt(h, port, func(addresses []string) {
		for _, a := range addresses {
			ip, ok := single(a)
			if !ok || s.key.Listening.Families == xds.IPv6Only && !view.IPv6.Has(ip) {
				continue
			}
			if strings.Contains(ip, ":") {
				ip = "[" + ip + "]"
			}
			if !known[ip] {
				out, known[ip] = append(out, ip), true
			}
		}
	})
	return out
}

// rivals calls the function visit with each host that may have the given domain.
func (s *scope) rivals(domain string, visit func(host string)) {
	address := strings.Trim(domain, "[]")
	for h := range s.in.Index.AtAddress(address) {
		visit(h)
	}
	domain = strings.TrimSuffix(domain, ".") // the absolute name, see namesOf
	for i, name := range [...]string{domain, strings.TrimPrefix(domain, "*.")} {
		if i == 1 && name == domain {
			break
		}
		s.hostsNamed(name, visit)
		host.LongNames(name, s.key.Namespace, s.key.Domain, func(long string) { s.hostsNamed(long, visit) })
	}
}

// hostsNamed calls the function visit with a name, and with all hosts for which the name is an alias. Aliases that the
// scope does not see are included.
func (s *scope) hostsNamed(name string, visit func(host string)) {
	visit(name)
	for of := range s.in.AliasTargets(name) {
		visit(of)
	}
}

// Rivals implements routes.Names. It appends the ids of all virtual hosts that may have the domain to ids, and returns
// the extended slice. The appended ids may include the id of vh, and ids that do not exist.
func (s *scope) Rivals(c routes.Config, vh *routes.VirtualHost, domain string, ids []string) []string {
	key := routeKey{port: vh.Port}
	if c.WithPorts {
		key.kind = ofProxy
	}
	s.rivals(key.withoutPort(domain), func(host string) { ids = append(ids, key.id(host)) })
	return ids
}

// Yields implements routes.Names. It reports whether vh loses a common domain to rival. An alias has a virtual host of
// its own only if a VirtualService has rules for it. An alias wins against a host that is not an alias. Between two
// aliases, or two hosts that are not aliases, precedes decides. The result reported is false if rival is an alias,
// because losing to an alias is not a problem.
func (s *scope) Yields(vh, rival *routes.VirtualHost) (yields, reported bool) {
	alias, own := s.isAlias(rival.Host), s.isAlias(vh.Host)
	return alias && !own || alias == own && s.precedes(rival, vh), !alias
}

// SameRank implements routes.Names. It reports whether two versions of one host's virtual host win and lose against the
// same rivals. Their fields Own must be equal. Both must have the same service with the same creation time, or neither
// may have a service.
func (s *scope) SameRank(a, b *routes.VirtualHost) bool {
	if a.Own != b.Own || a.Service == nil || b.Service == nil {
		return a.Own == b.Own && a.Service == b.Service
	}
	return a.Service.Key == b.Service.Key && a.Service.Created == b.Service.Created
}

// precedes reports whether the first virtual host wins a domain that both have. A host with a service wins against a
// host without a service. For two services host.Precedes decides. For hosts of the same service, or without services,
// the smaller name wins.
func (s *scope) precedes(a, b *routes.VirtualHost) bool {
	switch {
	case (a.Service == nil) != (b.Service == nil):
		return a.Service != nil
	case a.Service == nil || a.Service.Key == b.Service.Key:
		return a.Host < b.Host
	}
	return host.Precedes(a.Service, b.Service, s.key.Namespace)
}

// isAlias reports whether a name is an alias of another host.
func (s *scope) isAlias(name string) bool {
	h := s.hosts.Get(name)
	return h != nil && h.Alias() != nil
}

// Blame implements routes.Names. It returns the key of the object to which problems of vh are attributed. The object is
// the host's service or, without a service, the VirtualService of the first rule. The key is zero if there is neither a
// service nor a rule.
func (s *scope) Blame(vh *routes.VirtualHost) model.Key {
	if h := s.hosts.Get(vh.Host); h != nil && h.Service != nil {
		return h.Service.Key
	}
	if rules := vh.Rules.All(); len(rules) > 0 {
		return rules[0].VirtualService.Key
	}
	return model.Key{}
}
