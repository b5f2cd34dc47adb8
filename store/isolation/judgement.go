package isolation

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// judgement is one record while the rules look at it.
type judgement struct {
	*Rules
	mesh     Mesh
	of       *model.Head
	tenant   string
	known    bool // which tenant that is
	breaches []Breach
}

func (r *Rules) judgement(of *model.Head, mesh Mesh) *judgement {
	j := &judgement{Rules: r, mesh: mesh, of: of}
	j.tenant, j.known = mesh.Tenant(of.Key.Namespace)
	return j
}

// exported says whether another tenant's proxies see an object, and it is not the operators'.
func (j *judgement) exported(to []string) bool {
	if slices.Contains(j.Operators, j.of.Key.Namespace) {
		return false
	}
	return slices.ContainsFunc(to, func(namespace string) bool {
		return namespace != "~" && (namespace == "*" || !j.own(namespace))
	})
}

// own says whether a namespace is of the record's tenant.
func (j *judgement) own(namespace string) bool {
	if namespace == j.of.Key.Namespace {
		return true
	}
	of, _ := j.mesh.Tenant(namespace)
	return of == j.tenant
}

func (j *judgement) breaks(field, format string, args ...any) {
	if len(j.breaches) < maxBreaches {
		j.breaches = append(j.breaches, Breach{Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

// others notes a breach that depends on who is of which tenant.
func (j *judgement) others(field, format string, args ...any) {
	if j.breaks(field, format, args...); !j.known {
		j.breaches[len(j.breaches)-1].Unsure = true
	}
}

// address judges an address or a network that a record states.
func (j *judgement) address(field, text string) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return // which store/normal refuses
		}
		network = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
	}
	if a := network.Addr(); a.Is4In6() && network.Bits() >= 96 {
		network = netip.PrefixFrom(a.Unmap(), network.Bits()-96)
	}
	switch {
	case network.Bits() == 0 || network.IsSingleIP() && network.Addr().IsUnspecified():
		j.breaks(field, "%s stands for all addresses", text)
	case network.IsSingleIP():
		j.single(field, network.Addr())
	case slices.ContainsFunc(j.Ranges, network.Overlaps) || j.mesh.Within(network):
		j.breaks(field, "%s has addresses of the clusters' Services or Pods", text)
	}
}

// subnets judges the networks whose connections a match takes, whatever the host; those for gateways alone are free.
func (j *judgement) subnets(match string, gateways, subnets []string) {
	if len(gateways) > 0 && !slices.Contains(gateways, "mesh") {
		return
	}
	for _, subnet := range subnets {
		j.address(match+".destinationSubnets", subnet)
	}
}

// single judges one address: the one of a Service of the own tenant may be stated.
func (j *judgement) single(field string, a netip.Addr) {
	services, pod := j.mesh.At(a)
	for _, s := range services {
		if !j.own(s.Key.Namespace) {
			j.others(field, "%s is the address of Service %s/%s", a, s.Key.Namespace, s.Key.Name)
			return
		}
	}
	switch {
	case len(services) > 0:
	case pod:
		j.breaks(field, "%s is a Pod's address", a)
	case slices.ContainsFunc(j.Ranges, func(p netip.Prefix) bool { return p.Contains(a) }):
		j.breaks(field, "%s is of the clusters' ranges of Services and Pods (--cluster-ranges)", a)
	}
}

// host judges a host or wildcard that a record states; false: nothing more is to be said of it.
func (j *judgement) host(field, host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		j.address(field, a.String())
		return false
	}
	if decided := j.given(field, host); decided {
		return false
	}
	if j.inDomain(host) {
		if of, named := j.namespaceOf(host); !named {
			j.breaks(field, "%q stands for hosts below the cluster's domain that are no single namespace's", host)
		} else if !j.own(of) {
			j.others(field, "%q is below the cluster's domain, and namespace %s's", host, of)
		}
		return false
	}
	return !j.short(field, host)
}

// given judges a host by the list of hosts that tenants alone may have: the most specific entry that covers it
// decides. A wildcard must not cover another tenant's.
func (j *judgement) given(field, host string) (decided bool) {
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
	j.others(field, "%q: --tenant-hosts gives %q to tenant %s", host, at, of)
	return true
}

// inDomain says whether a host is below the cluster's domain, or covers hosts that are.
func (j *judgement) inDomain(host string) bool {
	return host == j.Domain || strings.HasSuffix(host, "."+j.Domain) || strings.HasPrefix(host, "*") &&
		strings.HasSuffix("."+j.Domain, host[1:])
}

// namespaceOf is the namespace in the name of a Service, or of a Pod or wildcard below one; false: it names none.
func (j *judgement) namespaceOf(host string) (namespace string, named bool) {
	rest, is := strings.CutSuffix(host, ".svc."+j.Domain)
	if !is {
		return "", false
	}
	at := strings.LastIndexByte(rest, '.')
	return rest[at+1:], at > 0
}

// short notes a host that stands for Services in the search lists of Pods: one label, NAME.NAMESPACE.svc, and
// NAME.NAMESPACE where another tenant has that Service. One that is younger than the record takes nothing from it.
func (j *judgement) short(field, host string) bool {
	name := strings.TrimPrefix(strings.TrimPrefix(host, "*"), ".")
	labels := strings.Split(name, ".")
	switch last := len(labels) - 1; {
	case last == 0 && name != host:
		j.breaks(field, "%q covers all names of a namespace, or of a top-level domain", host)
	case last == 0 || labels[last] == "svc":
		j.breaks(field, "%q is a short name, which stands for a Service in each namespace", host)
	case last <= 2: // with the name of a Pod before it
		service := strings.Join(labels[last-1:], ".") + ".svc." + j.Domain
		for _, s := range j.mesh.Services(service) {
			if s.Key.Kind == model.KindService && s.Created <= j.of.Created && !j.own(s.Key.Namespace) {
				j.others(field, "%q is a short name of Service %s/%s", host, s.Key.Namespace, s.Key.Name)
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}

// routed notes a host outside of the cluster that a VirtualService has and that is a ServiceEntry's of others: exactly
// this host, a wildcard that covers it, or a host below it. The oldest entry with a host decides whose it is. An entry
// that is younger than the VirtualService takes nothing from it, nor does a wildcard's that is younger than the own
// tenant's entry for a more specific host.
func (j *judgement) routed(field, host string) {
	var of *model.Service
	since := j.of.Created
	judge := func(oldest *model.Service) (own bool) {
		if oldest == nil || j.own(oldest.Key.Namespace) {
			return oldest != nil
		}
		if oldest.Created <= since {
			of = older(of, oldest)
		}
		return false
	}
	above := func(host string) {
		var oldest *model.Service
		for _, s := range j.mesh.Services(host) {
			oldest = older(oldest, s)
		}
		if judge(oldest) {
			since = min(since, oldest.Created)
		}
	}
	if strings.HasPrefix(host, "*") {
		for _, oldest := range j.below(host) {
			judge(oldest)
		}
	}
	above(host)
	for wildcard := range model.Wildcards(host) {
		above(wildcard)
	}
	if of != nil {
		j.others(field, "%q is a host of ServiceEntry %s/%s", host, of.Key.Namespace, of.Key.Name)
	}
}

// below finds the oldest ServiceEntry of each host that a wildcard covers.
func (j *judgement) below(wildcard string) map[string]*model.Service {
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

// older is the older of two; a may be nil.
func older(a, b *model.Service) *model.Service {
	if a == nil || b.Older(&a.Head) < 0 {
		return b
	}
	return a
}
