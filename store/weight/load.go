package weight

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Load holds what one record multiplies. Measure reads the whole record. Index.Weigh multiplies the Load by what the
// mesh has, and does not read the record.
type Load struct {
	key      model.Key
	exported bool
	fixed    int              // KiB, whatever else the mesh has
	each     int              // KiB of a rule for each cluster of its hosts, or for each of copies
	hosts    []string         // of a rule for sidecars: it has a copy for each cluster
	copies   int              // of a rule whose copies depend on no service
	uses     []use            // of a VirtualService: delegates whose routes it has beside its own
	delegate bool             // it is a VirtualService that others have the routes of
	exportTo []string         // of a delegate
	served   []string         // hosts of a service
	ports    int              // of a service
	subsets  int              // of a DestinationRule: each has the endpoints of its host
	stated   []string         // hosts of endpoints that a ServiceEntry states
	points   int              // of each of these hosts: endpoints by ports
	selects  label            // of a ServiceEntry whose endpoints are WorkloadEntries; empty: it selects none
	machine  []label          // of a WorkloadEntry
	patched  [families]copied // by what the patches of an EnvoyFilter change
}

// label is one of the labels by which ServiceEntries of a namespace select its WorkloadEntries.
type label struct{ namespace, key, value string }

// use is a delegate that some routes of a VirtualService name, and how many matches these have.
type use struct {
	delegate model.Key
	matches  int
}

// copied sums up the patches of one family of resources.
type copied struct{ patches, bytes int }

// The families of resources that patches change.
const (
	once        = iota // a single resource, or some that are made for the patch
	perCluster         // a resource for each cluster of the mesh
	perListener        // every listener
	perHTTP            // every listener with an HTTP connection manager, or its route configuration
	families
)

// Measure reads what a record multiplies.
func Measure(r model.Record) Load {
	l := Load{key: r.Meta().Key}
	namespace := l.key.Namespace
	switch t := r.(type) {
	case *model.Service:
		l.served, l.ports, l.exported = t.Spec.GetHosts(), Ports(t), elsewhere(t.Spec.GetExportTo(), namespace)
		hosts, addresses, listeners := len(l.served), len(t.Spec.GetAddresses()), 0
		for _, p := range t.Spec.GetPorts() {
			if !isHTTP(p) {
				listeners += addresses
			}
		}
		// A cluster for each host and port, a listener for each address and port of its own, and addresses as domains
		// of virtual hosts.
		l.selects = selected(t)
		l.fixed = l.ports*(hosts*cluster+hosts*addresses/perAddress) + listeners*cluster + bytes(t.Spec)*hosts
	case *model.Workload:
		l.machine = machine(t)
	case *model.Endpoints:
		if l.exported = true; Stated(t.Key) {
			l.stated, l.points = t.Spec.GetHosts(), len(t.Spec.GetPorts())*len(t.Spec.GetEndpoints())
			l.fixed = len(l.stated) * l.points / perEndpoint
		}
	case *model.DestinationRule:
		l.subsets = len(t.Spec.GetSubsets())
		l.each, l.hosts = eachSubset(t.Spec), []string{t.Spec.GetHost()}
		l.exported = everywhere(t.Spec.GetExportTo(), namespace) && t.Spec.GetWorkloadSelector() == nil
	case *model.VirtualService:
		l.virtualService(t.Spec)
	case *model.EnvoyFilter:
		for _, p := range t.Spec.GetConfigPatches() {
			to := &l.patched[family(p)]
			to.patches, to.bytes = to.patches+1, to.bytes+proto.Size(p.GetPatch().GetValue())
		}
	case *model.Sidecar:
		hosts := 0
		for _, e := range t.Spec.GetEgress() {
			hosts += len(e.GetHosts())
		}
		l.fixed = scope + hosts/perAddress + bytes(t.Spec)
	case *model.Policy, *model.Telemetry, *model.TrafficExtension:
		l.fixed = 1 + bytes(r.Body())
	}
	return l
}

// isHTTP reports whether services share the listener of a port.
func isHTTP(p *model.ServicePort) bool {
	switch p.GetProtocol() {
	case model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC, model.Protocol_PROTOCOL_GRPC_WEB:
		return true
	default:
		return false
	}
}

// eachSubset returns the KiB that a DestinationRule adds to each cluster of its host.
func eachSubset(d *networkingv1.DestinationRule) int {
	return 1 + len(d.GetSubsets())*subset + bytes(d)
}

// virtualService measures a rule: a route for each match, in a virtual host for each cluster. A rule for gateways alone
// has one for each of its hosts. A delegate has no hosts: by itself it weighs what it becomes in one rule of one
// virtual host.
func (l *Load) virtualService(vs *networkingv1.VirtualService) {
	l.exported = everywhere(vs.GetExportTo(), l.key.Namespace)
	routes := len(vs.GetTls()) + len(vs.GetTcp()) // at least one for each rule
	for _, r := range vs.GetTls() {
		routes += max(1, len(r.GetMatch())) - 1
	}
	for _, r := range vs.GetTcp() {
		routes += max(1, len(r.GetMatch())) - 1
	}
	uses := map[model.Key]int{}
	for _, r := range vs.GetHttp() {
		matches := max(1, len(r.GetMatch()))
		if to := r.GetDelegate(); to.GetName() != "" && len(vs.GetHosts()) > 0 {
			key := model.Key{Kind: model.KindVirtualService, Namespace: to.GetNamespace(), Name: to.GetName(), Origin: l.key.Origin}
			if key.Namespace == "" {
				key.Namespace = l.key.Namespace
			}
			uses[key] += matches
			continue
		}
		routes += matches
	}
	for key, matches := range uses {
		l.uses = append(l.uses, use{key, matches})
	}
	slices.SortFunc(l.uses, func(a, b use) int { return a.delegate.Compare(b.delegate) })
	l.each = routes*route + bytes(vs)
	switch {
	case len(vs.GetHosts()) == 0:
		l.delegate, l.exportTo, l.copies = true, vs.GetExportTo(), 1
	case ofSidecars(vs):
		l.hosts = vs.GetHosts()
	default:
		l.copies = len(vs.GetHosts())
	}
}

// Stated reports whether a key is that of Endpoints which a ServiceEntry states. EndpointSlices of Pods weigh nothing.
func Stated(key model.Key) bool {
	return len(key.Name) >= len(model.ServiceEntryPrefix) && key.Name[:len(model.ServiceEntryPrefix)] == model.ServiceEntryPrefix
}

// ofSidecars reports whether a rule is for sidecars, which have a virtual host for each host that it covers. One that
// is bound to gateways alone is for the hosts that it names.
func ofSidecars(vs *networkingv1.VirtualService) bool {
	return len(vs.GetGateways()) == 0 || slices.Contains(vs.GetGateways(), "mesh")
}

// family returns what a patch changes. A patch is applied to every resource of a family if it changes what is there, on
// the outbound side, and names no resource.
func family(p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) int {
	match := p.GetMatch()
	switch match.GetContext() {
	case networkingv1.EnvoyFilter_SIDECAR_INBOUND, networkingv1.EnvoyFilter_GATEWAY:
		return once
	}
	all := func(family int, narrow bool) int {
		if narrow {
			return once
		}
		return family
	}
	adds := p.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_ADD
	listener, routes := match.GetListener().GetName() != "", match.GetRouteConfiguration()
	switch p.GetApplyTo() {
	case networkingv1.EnvoyFilter_BOOTSTRAP, networkingv1.EnvoyFilter_EXTENSION_CONFIG:
		return once
	case networkingv1.EnvoyFilter_CLUSTER:
		c := match.GetCluster()
		return all(perCluster, adds || c.GetName() != "" || c.GetService() != "")
	case networkingv1.EnvoyFilter_VIRTUAL_HOST, networkingv1.EnvoyFilter_HTTP_ROUTE:
		return all(perCluster, routes.GetName() != "" || routes.GetVhost().GetName() != "")
	case networkingv1.EnvoyFilter_ROUTE_CONFIGURATION:
		return all(perHTTP, routes.GetName() != "")
	case networkingv1.EnvoyFilter_HTTP_FILTER:
		return all(perHTTP, listener)
	case networkingv1.EnvoyFilter_LISTENER:
		return all(perListener, adds || listener)
	}
	return all(perListener, listener) // filters and chains of listeners
}

// everywhere reads exportTo of Istio's messages, where an empty list means all namespaces.
func everywhere(exportTo []string, namespace string) bool {
	return len(exportTo) == 0 || elsewhere(exportTo, namespace)
}

func elsewhere(exportTo []string, namespace string) bool {
	return slices.ContainsFunc(exportTo, func(to string) bool { return to != "." && to != "~" && to != namespace })
}

func bytes(m proto.Message) int { return proto.Size(m) / perByte }
