package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// guard keeps endpoints that lead to a router's own Pod or Node out of the router's clusters. A router is the Envoy of
// a gateway. Without a guard, a ServiceEntry could publish the administration interface of this Envoy.
//
// The guard refuses the addresses that gateways.Local refuses. It also refuses the ports of the agent and of Envoy at
// the addresses and names of the router's Pods (see leadsBack). The guard knows these addresses from the Services that
// select the router's Pod (view.Edge). They are the virtual addresses and the endpoints' addresses of these Services.
// Services in the router's own namespace may use all ports, for example the readiness port.
type guard struct {
	services []*model.Service // the Services that select the router's Pod
	hosts    map[string]bool  // the hosts of these Services; immutable
	// reserved has the hosts of other namespaces with an endpoint at a port of the agent, of Envoy or of the router's
	// listeners. The addresses in the field own decide whether these endpoints are refused. A host that has lost these
	// endpoints stays in reserved until forget is called for it.
	reserved map[string]bool

	// SetListening sets these maps. They are immutable.
	listening map[uint32]bool      // the ports of the router's Pods, and of the Services in returning
	returning map[ServicePort]bool // the ports of the Services that forward to the router's Pods

	in  *input.Input        // the input from which own was computed
	own map[netip.Addr]bool // the addresses of the router's Pods, and the virtual addresses of their Services
	// names has the hostnames that the endpoints of the router's Pods state. A Pod resolves its own hostname by its
	// file /etc/hosts.
	names map[string]bool
}

// newGuard returns the guard of a router's Pod. The parameter selecting lists the Services that select the Pod.
func newGuard(in *input.Input, selecting intern.List[model.Key]) *guard {
	g := &guard{hosts: map[string]bool{}, reserved: map[string]bool{}}
	for _, key := range selecting.All() {
		r, _ := in.Get(key)
		if svc, is := r.(*model.Service); is {
			g.services = append(g.services, svc)
			for _, name := range svc.Spec.GetHosts() {
				g.hosts[name] = true
			}
		}
	}
	return g
}

// fork returns an independent copy. The copy of a nil guard is nil.
func (g *guard) fork() *guard {
	if g == nil {
		return nil
	}
	next := *g
	next.reserved = maps.Clone(g.reserved)
	return &next
}

// forget removes a host from reserved. It is called before all clusters and assignments of the host are planned.
func (g *guard) forget(name string) {
	if g != nil {
		delete(g.reserved, name)
	}
}

// addresses returns g.own for an input, and computes the fields own and names if the input has changed.
func (g *guard) addresses(in *input.Input) map[netip.Addr]bool {
	if g.in == in {
		return g.own
	}
	g.in, g.own, g.names = in, map[netip.Addr]bool{}, map[string]bool{}
	add := func(text string) {
		if addr, err := netip.ParseAddr(text); err == nil {
			g.own[addr.Unmap().WithZone("")] = true
		}
	}
	for _, svc := range g.services {
		for _, text := range svc.Spec.GetAddresses() {
			add(text)
		}
		for _, name := range svc.Spec.GetHosts() {
			for slice := range in.SlicesOf(svc, name) {
				for _, e := range slice.Spec.GetEndpoints() {
					add(e.GetAddress())
					if name := e.GetHostname(); name != "" {
						g.names[gateways.CanonicalName(name)] = true
					}
				}
			}
		}
	}
	return g.own
}

// refuses returns the reason why a router must not connect to a member (an endpoint) of a host, or "" if it may
// connect.
func (g *guard) refuses(in *input.Input, q input.Selection, namespace string, m model.Member) string {
	if why := gateways.Local(m.Endpoint.GetAddress()); why != "" {
		return why
	}
	use := gateways.OwnPort(m.Port)
	if use == "" && !g.returns(q.Service, m.Port) || q.Service.Key.Namespace == namespace {
		return ""
	}
	g.reserved[q.Host] = true
	switch {
	case !g.leadsBack(in, m.Endpoint.GetAddress()):
		return ""
	case use == "":
		return "the address is of the gateway's own Pods, which would route their own requests again"
	}
	return "the address is of the gateway's own Pods, and the port is for " + use
}

// leadsBack reports whether an address belongs to the router's Pods or to a Service that selects them. A DNS name leads
// back in three cases: it contains such an address (gateways.Addresses), it may resolve to a host of such a Service, or
// it is a hostname of the Pods. DNS names are compared and not resolved.
func (g *guard) leadsBack(in *input.Input, address string) bool {
	own := g.addresses(in)
	if slices.ContainsFunc(gateways.Addresses(address), func(addr netip.Addr) bool { return own[addr] }) {
		return true
	}
	for host := range g.hosts {
		if gateways.Resolves(address, host) {
			return true
		}
	}
	return g.names[gateways.CanonicalName(address)]
}

// members returns the members (endpoints) of a cluster, except those that the guard refuses. If it leaves out members,
// it appends a problem that names the first of them.
func (t *Table) members(q input.Selection, labels map[string]string, found *[]input.Problem) intern.List[model.Member] {
	all := t.in.Members(q, labels)
	if t.guard == nil {
		return all
	}
	refused := func(m model.Member) bool { return t.guard.refuses(t.in, q, t.key.Namespace, m) != "" }
	first := slices.IndexFunc(all.All(), refused)
	if first < 0 {
		return all
	}
	kept := slices.DeleteFunc(slices.Clone(all.All()), refused)
	*found = append(*found, t.unreachable(q, all.All()[first], all.Len()-len(kept)-1))
	return memberLists.List(kept...)
}

// local reports whether a router must not resolve a name that a service states in a field (gateways.Local). If so, it
// appends a problem of the service. It returns false without Form.Guarded.
func (t *Table) local(svc *model.Service, field, name string, found *[]input.Problem) bool {
	if t.guard == nil || gateways.Local(name) == "" {
		return false
	}
	*found = append(*found, input.Problem{Key: svc.Key, Field: field, Code: problem.NotAllowed, Severity: problem.Error,
		Message: fmt.Sprintf("gateways do not connect to host %s: %s; %s", name, gateways.Local(name), allowed)})
	return true
}

// Below reports whether proxies may send a request for a name to a destination host. It returns false if the table has
// Form.Guarded, the destination's service is Dynamic, and the destination neither equals nor covers the name. Envoy
// resolves the host of each request to a Dynamic destination, and the host could be 127.0.0.1 with any port. For a nil
// destination the result is true.
func (t *Table) Below(to *Host, name string) bool {
	return !t.guards(to) || name == to.Name || model.Covers(to.Name, name)
}

// guards reports whether Below restricts the names of requests to a destination.
func (t *Table) guards(to *Host) bool {
	return t.guard != nil && to != nil && to.Service != nil && Dynamic(to.Service)
}

// astray reports whether a rule of spec sends requests to the destination ref with a host name for which Below is
// false. It tests the name of the virtual host and the hosts that the rule sets. For the first such rule, it appends a
// problem of the rule's VirtualService.
func (t *Table) astray(spec *vhost.Spec, hosts Hosts, ref virtualservice.Ref, found *[]input.Problem) bool {
	to := hosts.Get(target(hosts, ref.Host))
	if !t.guards(to) {
		return false
	}
	for _, r := range spec.Rules.All() {
		if !r.Applies() || !virtualservice.RuleSendsTo(r.HTTP(), ref) {
			continue
		}
		for _, name := range append(virtualservice.SetHosts(r.HTTP()), spec.Host) {
			if !t.Below(to, name) {
				*found = append(*found, input.Problem{Key: r.VirtualService.Key, Field: fmt.Sprintf("spec.http[%d]", r.Index),
					Code: problem.NotAllowed, Severity: problem.Error, Message: fmt.Sprintf(
						"by this route gateways connect only to names below %s, and requests to host %s would go elsewhere: "+
							"they are answered 503; %s",
						to.Name, name, allowed)})
				return true
			}
		}
	}
	return false
}

// allowed is the end of messages. It names the setting that permits refused destinations.
const allowed = "NAVARCH_GATEWAY_LOCAL_DESTINATIONS=true allows it"

// unreachable returns the problem of an endpoint that is left out of a host's clusters. The parameter further is the
// number of other endpoints that are left out too.
func (t *Table) unreachable(q input.Selection, m model.Member, further int) input.Problem {
	p := input.Problem{Code: problem.NotAllowed, Severity: problem.Error}
	if gateways.Local(m.Endpoint.GetAddress()) == "" && gateways.OwnPort(m.Port) == "" {
		p.Severity = problem.Warning // this is common: sidecars reach the gateway by an external name
	}
	p.Key, p.Field = t.stating(q, m.Endpoint)
	at := m.Endpoint.GetAddress()
	if !strings.HasPrefix(at, "unix://") {
		at = fmt.Sprintf("%s, port %d", at, m.Port)
	}
	if further > 0 {
		at += fmt.Sprintf(" (and %d more)", further)
	}
	p.Message = fmt.Sprintf("host %s: gateways do not get the endpoint %s: %s; %s", q.Host, at,
		t.guard.refuses(t.in, q, t.key.Namespace, m), allowed)
	return p
}

// stating returns the object that states an endpoint of a host, and the object's field.
func (t *Table) stating(q input.Selection, e *model.Endpoint) (model.Key, string) {
	svc := q.Service
	if len(svc.Spec.GetSelector()) > 0 {
		for r := range t.in.In(model.KindWorkload, svc.Key.Namespace) {
			w := r.(*model.Workload)
			if w.Spec.FromEntry() && w.Spec.GetEndpoint().GetAddress() == e.GetAddress() {
				return w.Key, "spec.address"
			}
		}
	}
	if svc.Key.Kind == model.KindService {
		for slice := range t.in.SlicesOf(svc, q.Host) {
			if slices.Contains(slice.Spec.GetEndpoints(), e) {
				return slice.Key, "endpoints"
			}
		}
	}
	return svc.Key, "spec.endpoints"
}

// OwnsAny reports whether one of the names is a host of a Service that selects the router's own Pod. It returns false
// without Form.Guarded.
func (t *Table) OwnsAny(names map[string]bool) bool {
	if t.guard != nil {
		for name := range names {
			if t.guard.hosts[name] {
				return true
			}
		}
	}
	return false
}

// OwnedOtherwise returns the other hosts to plan again after the endpoints of the named hosts have changed. If
// OwnsAny(names) is true, these are the hosts whose endpoints depend on the addresses of the router's own Pods, sorted.
// The result is nil if OwnsAny(names) is false, or without such hosts.
func (t *Table) OwnedOtherwise(names map[string]bool) (dependent []string) {
	if t.guard == nil || len(t.guard.reserved) == 0 || !t.OwnsAny(names) {
		return nil
	}
	return slices.Sorted(maps.Keys(t.guard.reserved))
}
