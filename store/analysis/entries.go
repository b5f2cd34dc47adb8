package analysis

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// sharedHost warns of a host of a ServiceEntry if a Service or another ServiceEntry with this host has precedence for
// some proxies. A Service may have precedence at any age (behindService). Another ServiceEntry may have precedence if
// it is older. If an older ServiceEntry and the examined one are joined into one service (model.Joins), only their
// ports are compared.
func sharedHost(x *examination) {
	entry := x.record.(*model.Service)
	for _, host := range entry.Spec.GetHosts() {
		if x.behindService(host, entry) {
			continue
		}
		older := x.older(fact{kind: ownEntry, namespace: entry.Key.Namespace, name: host})
		first := slices.IndexFunc(older, func(r model.Record) bool {
			return overlap(r.(*model.Service).Spec.GetExportTo(), entry.Spec.GetExportTo())
		})
		switch {
		case first < 0:
			x.elsewhere(host, entry)
		case model.Joins(older[first].(*model.Service), entry):
			x.sharedPorts(host, entry, older)
		default:
			x.found("", problem.Duplicate, "spec.hosts", "host %q is claimed by the older %v of the same namespace too",
				host, older[first].Meta().Key)
		}
	}
}

// behindService warns if a Service with the host has precedence over a ServiceEntry for some proxies, and reports
// whether it warned. For proxies in the entry's namespace, a Service of that namespace precedes the entry, and the
// entry precedes Services of other namespaces. For all other proxies, a Service precedes the entry.
func (x *examination) behindService(host string, entry *model.Service) bool {
	for _, r := range x.with(fact{kind: kubeService, name: host}) {
		svc := r.(*model.Service)
		const lost = "the Service has precedence: the ports, addresses and resolution of this entry have no effect; its endpoints are added"
		switch own := svc.Key.Namespace == entry.Key.Namespace; {
		case own && overlap(svc.Spec.GetExportTo(), entry.Spec.GetExportTo()):
			x.found("", problem.Duplicate, "spec.hosts", "host %q is that of %v, and "+lost, host, model.OtherOf(svc))
			return true
		case !own && elsewhere(svc, entry):
			x.found("", problem.Duplicate, "spec.hosts",
				"host %q is that of %v: for proxies outside of namespace %s the Service has precedence, and this entry has no effect",
				host, model.OtherOf(svc), entry.Key.Namespace)
			return true
		}
	}
	return false
}

// elsewhere warns if a ServiceEntry of another namespace has the same host with other content. The other entry must
// have precedence for proxies of a third namespace to which both entries are exported. If a port has different
// protocols in the two entries, otherProtocol warns instead.
func (x *examination) elsewhere(host string, entry *model.Service) {
	all := x.with(fact{kind: serviceOfHost, name: host})
	for _, r := range all[:min(len(all), maxCompared)] {
		other := r.(*model.Service)
		if other.Key.Kind != model.KindServiceEntry || other.Key.Namespace == entry.Key.Namespace ||
			!ahead(other, entry) || !elsewhere(other, entry) {
			continue
		}
		if !otherProtocols(other, entry) && !x.equal(host, other, entry) {
			x.found("", problem.Duplicate, "spec.hosts", "host %q is claimed by %v too, with other content: "+
				"for proxies outside of namespace %s the older one has precedence, and this one has no effect",
				host, model.OlderOf(other), entry.Key.Namespace)
		}
		return
	}
}

// ahead reports whether the ServiceEntry a precedes b for proxies of a third namespace. The older one precedes. If
// their ages are equal, the names of the namespaces decide.
func ahead(a, b *model.Service) bool {
	return cmp.Or(model.CompareCreated(a.Created, b.Created),
		strings.Compare(a.Key.Namespace, b.Key.Namespace), a.Older(&b.Head)) < 0
}

// equal reports whether two entries with one host result in the same proxy configuration. It returns false if one of
// the entries has a selector.
func (x *examination) equal(host string, a, b *model.Service) bool {
	s, o := a.Spec, b.Spec
	return len(s.GetSelector())+len(o.GetSelector()) == 0 && s.GetResolution() == o.GetResolution() && s.GetExternal() == o.GetExternal() &&
		slices.Equal(s.GetAddresses(), o.GetAddresses()) && slices.Equal(s.GetSubjectAltNames(), o.GetSubjectAltNames()) &&
		slices.EqualFunc(s.GetPorts(), o.GetPorts(), func(p, q *model.ServicePort) bool { return proto.Equal(p, q) }) &&
		slices.EqualFunc(x.endpointsOf(host, a), x.endpointsOf(host, b), sameEndpoint)
}

// sameEndpoint reports whether two endpoints are equal apart from their namespaces. An endpoint's namespace is that of
// its entry.
func sameEndpoint(a, b *model.Endpoint) bool {
	c := proto.Clone(b).(*model.Endpoint)
	c.Namespace = a.GetNamespace()
	return proto.Equal(a, c)
}

// endpointsOf returns the endpoints that the spec of an entry states for a host.
func (x *examination) endpointsOf(host string, entry *model.Service) (all []*model.Endpoint) {
	for _, r := range x.with(fact{kind: endpointsOfHost, name: host}) {
		of := normal.SourceObject(r.Meta().Key)
		if of.Kind == "ServiceEntry" && of.Namespace == entry.Key.Namespace && of.Name == entry.Key.Name {
			all = append(all, r.(*model.Endpoints).Spec.GetEndpoints()...)
		}
	}
	return all
}

// sharedPorts compares the ports of a ServiceEntry with the ports of the older entries that are joined with it into one
// service. It warns of a port if an older entry has the port number with another name or protocol.
func (x *examination) sharedPorts(host string, entry *model.Service, older []model.Record) {
	for _, p := range entry.Spec.GetPorts() {
		for _, r := range older {
			other := r.(*model.Service)
			q := portOf(other, p.GetNumber())
			if q == nil || !model.Joins(other, entry) {
				continue
			}
			if q.GetName() != p.GetName() || q.GetProtocol() != p.GetProtocol() {
				analyzer := problem.ConflictingServiceEntryProtocol
				if q.GetProtocol() == p.GetProtocol() {
					analyzer = ""
				}
				unused := ""
				if q.GetName() != p.GetName() && entry.Spec.GetResolution() == model.Resolution_RESOLUTION_EDS {
					unused = "; endpoints of another name are not used"
				}
				x.found(analyzer, problem.Duplicate, "spec.ports", "port %d of host %q is that of the older %v, with its name and protocol%s",
					p.GetNumber(), host, other.Key, unused)
			}
			break
		}
	}
}

// portOf returns the port of svc with the given number, or nil if there is no such port. The ports of a record are
// sorted by number.
func portOf(svc *model.Service, number uint32) *model.ServicePort {
	ports := svc.Spec.GetPorts()
	i, is := slices.BinarySearchFunc(ports, number, func(p *model.ServicePort, n uint32) int { return cmp.Compare(p.GetNumber(), n) })
	if !is {
		return nil
	}
	return ports[i]
}

// otherProtocol warns of ports for which an older ServiceEntry with the same host has another protocol. There must be a
// namespace to which both entries are exported. Entries that are joined into one service are left to sharedPorts.
func otherProtocol(x *examination) {
	entry := x.record.(*model.Service)
	for _, host := range entry.Spec.GetHosts() {
		for _, r := range x.older(fact{kind: serviceOfHost, name: host}) {
			other := r.(*model.Service)
			if other.Key.Kind != model.KindServiceEntry || model.Joins(other, entry) ||
				!overlap(other.Spec.GetExportTo(), entry.Spec.GetExportTo()) {
				continue
			}
			for _, p := range entry.Spec.GetPorts() {
				if otherProtocolOf(other, p) {
					x.found(problem.ConflictingServiceEntryProtocol, problem.Duplicate, "spec.ports",
						"port %d of host %q has another protocol in %v, which wins for proxies that see both",
						p.GetNumber(), host, model.OlderOf(other))
				}
			}
		}
	}
}

// otherProtocols reports whether two services have the same port number with different protocols.
func otherProtocols(a, b *model.Service) bool {
	return slices.ContainsFunc(b.Spec.GetPorts(), func(p *model.ServicePort) bool { return otherProtocolOf(a, p) })
}

// otherProtocolOf reports whether svc has a port with the same number as p and another protocol.
func otherProtocolOf(svc *model.Service, p *model.ServicePort) bool {
	q := portOf(svc, p.GetNumber())
	return q != nil && q.GetProtocol() != p.GetProtocol()
}
