package isolation

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// evaluation applies the rules to one record and collects its breaches.
type evaluation struct {
	*Rules
	mesh     Mesh
	of       *model.Head // key and creation time of the record
	tenant   string      // tenant of the record's namespace
	known    bool        // the labels of namespaces are known (Mesh.Tenant)
	breaches []Breach
}

// evaluate starts the evaluation of one record.
func (r *Rules) evaluate(of *model.Head, mesh Mesh) *evaluation {
	j := &evaluation{Rules: r, mesh: mesh, of: of}
	j.tenant, j.known = mesh.Tenant(of.Key.Namespace)
	return j
}

// exported reports whether proxies of other tenants see the record. The parameter exportTo is the normalised field of
// the record. For records in namespaces of Operators the result is false.
func (j *evaluation) exported(exportTo []string) bool {
	if slices.Contains(j.Operators, j.of.Key.Namespace) {
		return false
	}
	return slices.ContainsFunc(exportTo, func(namespace string) bool {
		return namespace != "~" && (namespace == "*" || !j.own(namespace))
	})
}

// own reports whether a namespace belongs to the record's tenant.
func (j *evaluation) own(namespace string) bool {
	if namespace == j.of.Key.Namespace {
		return true
	}
	of, _ := j.mesh.Tenant(namespace)
	return of == j.tenant
}

// report adds a breach and returns true. If there are maxBreaches already, it adds nothing and returns false.
func (j *evaluation) report(field, format string, args ...any) (added bool) {
	if len(j.breaches) == maxBreaches {
		return false
	}
	b := Breach{Field: field}
	b.Message, b.Whole = model.Messages(j.of.Key.Namespace, format, args...)
	j.breaches = append(j.breaches, b)
	return true
}

// reportUnsure adds a breach that depends on the tenants of two namespaces. It marks the breach as unsure while the
// labels of namespaces are not known.
func (j *evaluation) reportUnsure(field, format string, args ...any) {
	if j.report(field, format, args...) && !j.known {
		j.breaches[len(j.breaches)-1].Unsure = true
	}
}

// address checks an IP address or a network that a record states. Any other text is accepted.
func (j *evaluation) address(field, text string) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return // a DNS name, or text that store/normal refuses
		}
		network = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
	}
	if a := network.Addr(); a.Is4In6() && network.Bits() >= 96 {
		network = netip.PrefixFrom(a.Unmap(), network.Bits()-96)
	}
	switch {
	case network.Bits() == 0 || network.IsSingleIP() && network.Addr().IsUnspecified():
		j.report(field, "%s stands for all addresses", text)
	case network.IsSingleIP():
		j.single(field, network.Addr())
	case slices.ContainsFunc(j.Ranges, network.Overlaps) || j.mesh.Within(network):
		j.report(field, "%s has addresses of the clusters' Services or Pods", text)
	}
}

// subnets checks the destination networks of a match, which apply to connections to any host. A match is not checked if
// it lists gateways without mesh.
func (j *evaluation) subnets(match string, gateways, subnets []string) {
	if len(gateways) > 0 && !slices.Contains(gateways, "mesh") {
		return
	}
	for _, subnet := range subnets {
		j.address(match+".destinationSubnets", subnet)
	}
}

// single checks one IP address. Addresses of the own tenant's Services are allowed.
func (j *evaluation) single(field string, a netip.Addr) {
	services, pod := j.mesh.At(a)
	for _, s := range services {
		if !j.own(s.Key.Namespace) {
			j.reportUnsure(field, "%s is the address of %v", a, named(s))
			return
		}
	}
	switch {
	case len(services) > 0:
	case pod:
		j.report(field, "%s is a Pod's address", a)
	case slices.ContainsFunc(j.Ranges, func(p netip.Prefix) bool { return p.Contains(a) }):
		j.report(field, "%s is of the clusters' ranges of Services and Pods (--cluster-ranges)", a)
	}
}

// host checks a host, wildcard or IP address that a record states. It returns true if no rule of this function applies
// to the host. The caller then checks further rules.
func (j *evaluation) host(field, host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		j.address(field, a.String())
		return false
	}
	if decided := j.given(field, host); decided {
		return false
	}
	if j.inDomain(host) {
		if of, named := j.namespaceOf(host); !named {
			j.report(field, "%q covers hosts below the cluster's domain, and does not name a single namespace", host)
		} else if !j.own(of) {
			j.reportUnsure(field, "%q is below the cluster's domain, and namespace %s's", host, of)
		}
		return false
	}
	return !j.short(field, host)
}

// given checks a host against the hosts that are reserved for tenants (Rules.Given). The most specific entry for the
// host, or for a wildcard that covers it, decides. Without such an entry, a wildcard must not cover the entry of
// another tenant. The result decided reports whether an entry applied.
func (j *evaluation) given(field, host string) (decided bool) {
	if len(j.Given) == 0 {
		return false
	}
	at, of := host, j.Given[host]
	for wildcard := range model.Wildcards(host) {
		if of != "" {
			break
		}
		at, of = wildcard, j.Given[wildcard]
	}
	if of == j.tenant {
		return true
	}
	if of == "" && strings.HasPrefix(host, "*") {
		for _, one := range slices.Sorted(maps.Keys(j.Given)) {
			if model.Covers(host, one) && j.Given[one] != j.tenant {
				at, of = one, j.Given[one]
				break
			}
		}
	}
	if of == "" {
		return false
	}
	j.reportUnsure(field, "%q: --tenant-hosts gives %q to tenant %s", host, at, of)
	return true
}

// inDomain reports whether a host is the cluster's domain or below it, or a wildcard that covers such hosts.
func (j *evaluation) inDomain(host string) bool {
	return host == j.Domain || strings.HasSuffix(host, "."+j.Domain) || strings.HasPrefix(host, "*") &&
		strings.HasSuffix("."+j.Domain, host[1:])
}

// namespaceOf returns the namespace in [POD.]SERVICE.NAMESPACE.svc.DOMAIN, or in a wildcard below NAMESPACE.svc.DOMAIN.
// It returns false for any other host.
func (j *evaluation) namespaceOf(host string) (namespace string, named bool) {
	rest, is := strings.CutSuffix(host, ".svc."+j.Domain)
	if !is {
		return "", false
	}
	at := strings.LastIndexByte(rest, '.')
	return rest[at+1:], at > 0
}

// short adds a breach for a host that the DNS search lists of Pods complete to the name of a Service. There are three
// kinds of such hosts: a single label, also after "*."; any name that ends in .svc; and [POD.]NAME.NAMESPACE, if
// another tenant has that Service and the Service is not younger than the record. The result is true if a breach was
// added.
func (j *evaluation) short(field, host string) bool {
	name := strings.TrimPrefix(strings.TrimPrefix(host, "*"), ".")
	labels := strings.Split(name, ".")
	switch last := len(labels) - 1; {
	case last == 0 && name != host:
		j.report(field, "%q covers all names of a namespace, or of a top-level domain", host)
	case last == 0 || labels[last] == "svc":
		j.report(field, "%q is a short name, which stands for a Service in each namespace", host)
	case last <= 2: // with the name of a Pod before it
		service := strings.Join(labels[last-1:], ".") + ".svc." + j.Domain
		for _, s := range j.mesh.Services(service) {
			if s.Key.Kind == model.KindService && model.CompareCreated(s.Created, j.of.Created) <= 0 && !j.own(s.Key.Namespace) {
				j.reportUnsure(field, "%q is a short name of %v", host, named(s))
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}

// routed adds a breach for a host of a VirtualService if a ServiceEntry of another tenant owns this host, or a wildcard
// that covers it. If the host is itself a wildcard, the entry may also own a host that this wildcard covers. The caller
// passes only hosts outside of the cluster's domain.
//
// The oldest ServiceEntry with a host owns it. Entries that are younger than the VirtualService do not count. An entry
// for a wildcard does not count either if it is younger than the own tenant's entry for a more specific host.
func (j *evaluation) routed(field, host string) {
	var of *model.Service
	since := j.of.Created
	consider := func(oldest *model.Service) (own bool) {
		if oldest == nil || j.own(oldest.Key.Namespace) {
			return oldest != nil
		}
		if model.CompareCreated(oldest.Created, since) <= 0 {
			of = older(of, oldest)
		}
		return false
	}
	above := func(host string) {
		var oldest *model.Service
		for _, s := range j.mesh.Services(host) {
			oldest = older(oldest, s)
		}
		if consider(oldest) && model.CompareCreated(oldest.Created, since) < 0 {
			since = oldest.Created
		}
	}
	if strings.HasPrefix(host, "*") {
		for _, oldest := range j.below(host) {
			consider(oldest)
		}
	}
	above(host)
	for wildcard := range model.Wildcards(host) {
		above(wildcard)
	}
	if of != nil {
		j.reportUnsure(field, "%q is a host of %v", host, named(of))
	}
}

// below maps each host that a wildcard covers to the oldest ServiceEntry with that host.
func (j *evaluation) below(wildcard string) map[string]*model.Service {
	oldest := map[string]*model.Service{}
	for _, s := range j.mesh.Below(wildcard) {
		for _, host := range s.Spec.GetHosts() {
			if model.Covers(wildcard, host) {
				oldest[host] = older(oldest[host], s)
			}
		}
	}
	return oldest
}

// named returns the kind and name of a service for messages. A Mesh leaves out the name of a service that the reader
// must not know.
func named(s *model.Service) model.Other {
	kind := "Service"
	if s.Key.Kind == model.KindServiceEntry {
		kind = "ServiceEntry"
	}
	o := model.OtherOf(s)
	o.Text, o.Hidden = kind+" "+s.Key.Namespace+"/"+s.Key.Name, "a "+kind+" of another tenant"
	if s.Key.Name == "" {
		o.Text = o.Hidden
	}
	return o
}

// older returns the older of two services, or b if a is nil.
func older(a, b *model.Service) *model.Service {
	if a == nil || b.Older(&a.Head) < 0 {
		return b
	}
	return a
}
