package weight

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Load contains the factors by which the memory for one record multiplies. Measure computes the factors from the
// record. Index.Weigh multiplies the factors by facts of the mesh, without the record. A Load is immutable.
type Load struct {
	key      model.Key
	exported bool
	fixed    int              // KiB independent of the rest of the mesh
	each     int              // KiB of one copy of a rule; each cluster of its hosts has a copy, and the field copies counts further ones
	hosts    []string         // hosts of a rule for sidecars; the rule has a copy for each cluster of these hosts
	copies   int              // number of copies of a rule that are independent of services and Gateways
	gateways []model.Key      // Gateways that a VirtualService names
	names    []string         // hosts of a VirtualService with gateways
	gateway  gateway          // hosts of a Gateway's servers
	uses     []use            // delegates of a VirtualService; their routes are added to its routes
	delegate bool             // the record is a delegate
	exportTo []string         // exportTo list of a delegate
	served   []string         // hosts of a service
	ports    int              // number of ports of a service
	subsets  int              // number of subsets of a DestinationRule; each contains the endpoints of the rule's host
	stated   []string         // hosts of the endpoints in a ServiceEntry's spec
	sliced   []string         // hosts of the endpoints in an EndpointSlice, or of a Service of type ExternalName
	points   int              // number of endpoints times ports, for each host in stated or sliced
	selects  label            // label by which a service selects WorkloadEntries; empty: it selects none
	machine  []label          // labels of a WorkloadEntry
	patched  [families]copied // patches of an EnvoyFilter, by the family of resources that they change
}

// label is a label by which services of a namespace select WorkloadEntries of the same namespace.
type label struct{ namespace, key, value string }

// use is a delegate of a VirtualService, with the number of matches of the routes that name it.
type use struct {
	delegate model.Key
	matches  int
}

// copied has the number of patches of one family of resources, and the sum of their bytes.
type copied struct{ patches, bytes int }

// Families of the resources that patches change.
const (
	once        = iota // one resource, or resources that the patch creates
	perCluster         // a resource for each cluster of the mesh
	perListener        // every listener
	perHTTP            // every listener with an HTTP connection manager, or its route configuration
	families
)

// Measure computes the factors of a record of any kind. The result refers to lists of the record, which must not change
// afterwards. The result has no factors for Pods, and for kinds without a case below, such as Secrets.
func Measure(r model.Record) Load {
	l := Load{key: r.Meta().Key}
	namespace := l.key.Namespace
	switch t := r.(type) {
	case *model.Service:
		l.served, l.ports, l.exported = t.Spec.GetHosts(), Ports(t), elsewhere(t.Spec.GetExportTo(), namespace)
		hosts, addresses, listeners := len(l.served), len(t.Spec.GetAddresses()), 0
		for _, p := range t.Spec.GetPorts() {
			if !p.GetProtocol().IsHTTP() {
				listeners += addresses
			}
		}
		// The estimate covers a cluster for each host and port, a listener for each address and port that is not HTTP,
		// and addresses as domains of virtual hosts. It also covers comparisons between hosts that share addresses.
		l.selects = selected(t)
		named := hosts*addresses/perAddress + times(hosts*addresses, hosts)/perSharing
		l.fixed = times(l.ports, hosts*cluster+named) + listeners*cluster + bytes(t.Spec)*hosts
	case *model.Workload:
		l.machine = machine(t)
	case *model.Endpoints:
		l.exported, l.points = true, len(t.Spec.GetPorts())*len(t.Spec.GetEndpoints())
		if Stated(t.Key) {
			l.stated = t.Spec.GetHosts()
			l.fixed = len(l.stated) * l.points / perEndpoint
		} else {
			l.sliced = t.Spec.GetHosts()
		}
	case *model.DestinationRule:
		l.subsets = len(t.Spec.GetSubsets()) + versions(t.Spec)
		l.each, l.hosts = eachSubset(t.Spec), []string{t.Spec.GetHost()}
		l.exported = everywhere(t.Spec.GetExportTo(), namespace) && t.Spec.GetWorkloadSelector() == nil
	case *model.VirtualService:
		l.virtualService(t.Spec)
	case *model.Gateway:
		l.gatewayLoad(t.Spec)
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
		l.fixed = scope + hosts/perImport + bytes(t.Spec)
	case *model.Policy, *model.Telemetry, *model.TrafficExtension:
		l.fixed = 1 + bytes(r.Body())
	}
	return l
}

// eachSubset returns the KiB that a DestinationRule adds to each cluster of its host.
func eachSubset(d *networkingv1.DestinationRule) int {
	return 1 + len(d.GetSubsets())*subset + bytes(d) + times(ring(d), 1+len(d.GetSubsets()))
}

// commonRing is the largest number of entries of a ring or Maglev table that is not counted. It is Envoy's default size
// of a Maglev table.
const commonRing = 65_537

// ring returns the KiB of the largest ring or Maglev table of a DestinationRule. Each Envoy needs this memory for each
// cluster and subset, and 8 bytes of YAML may state 200 MB of it.
func ring(d *networkingv1.DestinationRule) int {
	entries := uint64(0)
	for _, b := range balances(d) {
		h := b.GetConsistentHash()
		//lint:ignore SA1019 users still state it
		deprecated := h.GetMinimumRingSize()
		entries = max(entries, h.GetRingHash().GetMinimumRingSize(), h.GetMaglev().GetTableSize(), deprecated)
	}
	if entries <= commonRing {
		return 0
	}
	return int(min(entries, most) / perEntry)
}

// versionsOfLabels is the assumed number of assignments (lists of endpoints) of each cluster whose endpoints are
// ordered by labels of the clients. There is one assignment for each value of the labels of endpoints, and one for all
// clients with other values.
const versionsOfLabels = 32

// versions returns the number of additional assignments that each cluster needs because a DestinationRule compares
// labels of clients with labels of endpoints. Each assignment contains the endpoints of the host.
func versions(d *networkingv1.DestinationRule) int {
	for _, b := range balances(d) {
		priority := slices.Concat(b.GetLocalityLbSetting().GetFailoverPriority(), b.GetZoneAwareLbSetting().GetFailoverPriority())
		if slices.ContainsFunc(priority, func(label string) bool { return !strings.Contains(label, "=") }) {
			return versionsOfLabels * max(1, len(d.GetSubsets()))
		}
	}
	return 0
}

// balances returns the load balancer settings of a DestinationRule, of its subsets and of their ports. Elements may be
// nil.
func balances(d *networkingv1.DestinationRule) (all []*networkingv1.LoadBalancerSettings) {
	policies := []*networkingv1.TrafficPolicy{d.GetTrafficPolicy()}
	for _, s := range d.GetSubsets() {
		policies = append(policies, s.GetTrafficPolicy())
	}
	for _, p := range policies {
		all = append(all, p.GetLoadBalancer())
		for _, port := range p.GetPortLevelSettings() {
			all = append(all, port.GetLoadBalancer())
		}
	}
	return all
}

// virtualService measures a VirtualService. It has a route for each match, in each of its virtual hosts. Sidecars have
// one virtual host for each cluster. A Gateway that the VirtualService names has one virtual host for each host of its
// servers that intersects with a host of the VirtualService. A delegate has no hosts, so its own weight is the weight
// of one copy in one virtual host.
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
	if l.gateways = gatewaysOf(vs, l.key); len(l.gateways) > 0 {
		l.names = vs.GetHosts()
	}
	if len(vs.GetHosts()) == 0 {
		l.delegate, l.exportTo, l.copies = true, vs.GetExportTo(), 1
	} else if ofSidecars(vs) {
		l.hosts = vs.GetHosts()
	}
}

// Stated reports whether the key of an Endpoints record belongs to the endpoints in a ServiceEntry's spec. Only the
// name of the key counts. Other Endpoints are those of EndpointSlices and of Services of type ExternalName.
func Stated(key model.Key) bool {
	return len(key.Name) >= len(model.ServiceEntryPrefix) && key.Name[:len(model.ServiceEntryPrefix)] == model.ServiceEntryPrefix
}

// ofSidecars reports whether a VirtualService applies to sidecars. Sidecars have a virtual host for each host that it
// covers.
func ofSidecars(vs *networkingv1.VirtualService) bool {
	return len(vs.GetGateways()) == 0 || slices.Contains(vs.GetGateways(), "mesh")
}

// family returns the family of a patch. A patch applies to every resource of a family if it changes existing resources
// on the outbound side, and names no resource.
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

// everywhere reports whether an exportTo list contains a namespace other than the given one. An empty list means all
// namespaces, as in Istio's messages.
func everywhere(exportTo []string, namespace string) bool {
	return len(exportTo) == 0 || elsewhere(exportTo, namespace)
}

// elsewhere reports whether an exportTo list contains a namespace other than the given one, or an entry for all
// namespaces.
func elsewhere(exportTo []string, namespace string) bool {
	return slices.ContainsFunc(exportTo, func(to string) bool { return to != "." && to != "~" && to != namespace })
}

// bytes returns the encoded size of a message in KiB, rounded down.
func bytes(m proto.Message) int { return proto.Size(m) / perByte }
