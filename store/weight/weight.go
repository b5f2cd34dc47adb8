// Package weight estimates the memory that each replica needs for what one record becomes, from what the record multiplies: hosts by ports, subsets
// by clusters, routes by virtual hosts, patches by what they match. A record of a few hundred bytes may become 65,536 clusters.
//
// Owns: nothing, it is pure.  Reads: store/model.  Never: what proxies are connected, so that every process comes to the same.
package weight

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Estimates in KiB: what lives of one, and what planning and sending it needs meanwhile. They were measured with 500 services: a cluster of a
// ServiceEntry with its assignment and virtual host takes 2 to 4 KiB, and 10 KiB while it is planned and sent.
const (
	cluster = 8
	route   = 8
	scope   = 80 // of a Sidecar: what a further scope has of its own
)

// Fractions of an estimate, as divisors.
const (
	perAddress  = 8    // domains of a virtual host that are addresses, in KiB for each host and port
	perEndpoint = 8    // endpoints of an assignment, in KiB for each cluster
	perPatch    = 4    // applying a patch, in KiB for each resource that it changes
	perByte     = 1024 // bytes of a record that each copy has, in KiB
)

// Mesh answers what the weight of one record depends on in others, as they are now.
type Mesh interface {
	// Clusters returns how many ports the services of a host have, or of all hosts that a wildcard covers.
	Clusters(host string) int
	// Dependent returns the KiB that rules of the same namespace add if a host gets so many ports, beyond what their own weights say.
	Dependent(namespace, host string, ports int) int
}

// Weight is an estimate in KiB. Its parts are bounded, so sums of many do not overflow.
type Weight struct {
	Exported int // what proxies of other namespaces get too
	Own      int // what proxies of its own namespace alone get
}

// Plus returns the sum of two weights.
func (w Weight) Plus(o Weight) Weight { return Weight{w.Exported + o.Exported, w.Own + o.Own} }

// Minus returns the difference of two weights.
func (w Weight) Minus(o Weight) Weight { return Weight{w.Exported - o.Exported, w.Own - o.Own} }

// What one object weighs beyond freeOfExcess KiB counts excess times: very much that comes at once holds up everybody, while honest tenants, however
// large, have many objects that become little each.
const (
	freeOfExcess = 256
	excess       = 4
)

// Counted returns what the weight of one object counts for in a budget.
func (w Weight) Counted() Weight {
	count := func(kib int) int { return kib + max(0, kib-freeOfExcess)*(excess-1) }
	return Weight{count(w.Exported), count(w.Own)}
}

// most bounds each weight, in KiB.
const most = 1 << 40

// Of weighs a record. Kinds that no proxy is told of, and those that controllers make of Pods, weigh nothing.
func Of(r model.Record, mesh Mesh) Weight {
	namespace := r.Meta().Key.Namespace
	switch t := r.(type) {
	case *model.Service:
		return of(service(t, mesh), elsewhere(t.Spec.GetExportTo(), namespace))
	case *model.Endpoints:
		return of(endpoints(t), true)
	case *model.DestinationRule:
		return of(Each(t)*covered(t.Spec.GetHost(), mesh), everywhere(t.Spec.GetExportTo(), namespace))
	case *model.VirtualService:
		hosts := len(t.Spec.GetHosts())
		if ofSidecars(t) {
			hosts = 0
			for _, h := range t.Spec.GetHosts() {
				hosts += covered(h, mesh)
			}
		}
		return of(Each(t)*hosts, everywhere(t.Spec.GetExportTo(), namespace))
	case *model.EnvoyFilter:
		return of(patches(t.Spec, mesh), false)
	case *model.Sidecar:
		hosts := 0
		for _, e := range t.Spec.GetEgress() {
			hosts += len(e.GetHosts())
		}
		return of(scope+hosts/perAddress+bytes(t.Spec), false)
	case *model.Policy, *model.Telemetry, *model.TrafficExtension:
		return of(1+bytes(r.Body()), false)
	}
	return Weight{}
}

func of(kib int, exported bool) Weight {
	if kib = min(max(kib, 0), most); exported {
		return Weight{Exported: kib}
	}
	return Weight{Own: kib}
}

// Each returns the KiB that a rule adds to each cluster of its hosts: subsets of a DestinationRule, routes of a VirtualService. Of other kinds: 0.
func Each(r model.Record) int {
	switch t := r.(type) {
	case *model.DestinationRule:
		return 1 + len(t.Spec.GetSubsets())*cluster + bytes(t.Spec)
	case *model.VirtualService:
		return routes(t.Spec)*route + bytes(t.Spec)
	}
	return 0
}

// Ports returns the clusters that a service has for each of its hosts.
func Ports(s *model.Service) int { return len(s.Spec.GetPorts()) }

// service: a cluster for each host and port, a listener for each address and port, and addresses as domains of virtual hosts.
func service(s *model.Service, mesh Mesh) int {
	hosts, ports, addresses := len(s.Spec.GetHosts()), Ports(s), len(s.Spec.GetAddresses())
	sum := ports * (hosts*cluster + addresses*cluster + hosts*addresses/perAddress)
	sum += bytes(s.Spec) * hosts
	for _, h := range s.Spec.GetHosts() {
		sum += mesh.Dependent(s.Key.Namespace, h, ports)
	}
	return sum
}

// endpoints: those that a ServiceEntry states, once for each host and port. EndpointSlices of Pods weigh nothing.
func endpoints(e *model.Endpoints) int {
	if !Stated(e.Key) {
		return 0
	}
	return len(e.Spec.GetHosts()) * len(e.Spec.GetPorts()) * len(e.Spec.GetEndpoints()) / perEndpoint
}

// Stated reports whether a key is that of Endpoints which a ServiceEntry states.
func Stated(key model.Key) bool {
	return len(key.Name) >= len(model.ServiceEntryPrefix) && key.Name[:len(model.ServiceEntryPrefix)] == model.ServiceEntryPrefix
}

// covered is at least one: a rule whose host is not there yet counts as one for a service of one port.
func covered(host string, mesh Mesh) int { return max(1, mesh.Clusters(host)) }

// ofSidecars reports whether a rule is for sidecars, which have a virtual host for each host that it covers. One that is bound to gateways alone
// is for the hosts that it names.
func ofSidecars(vs *model.VirtualService) bool {
	return len(vs.Spec.GetGateways()) == 0 || slices.Contains(vs.Spec.GetGateways(), "mesh")
}

// routes: a route for each match, of HTTP, TLS and TCP.
func routes(vs *networkingv1.VirtualService) (n int) {
	for _, r := range vs.GetHttp() {
		n += max(1, len(r.GetMatch()))
	}
	for _, r := range vs.GetTls() {
		n += max(1, len(r.GetMatch()))
	}
	for _, r := range vs.GetTcp() {
		n += max(1, len(r.GetMatch()))
	}
	return n
}

// patches: applied to each resource that they match, which has their bytes then.
func patches(f *networkingv1.EnvoyFilter, mesh Mesh) (sum int) {
	for _, p := range f.GetConfigPatches() {
		size := proto.Size(p.GetPatch().GetValue())
		copies := 1
		if wide(p) {
			copies = max(1, mesh.Clusters("*"))
		}
		sum = min(most, sum+1+copies/perPatch+copies*size/perByte)
	}
	return sum
}

// wide reports whether a patch may change a resource of every service: it changes what is there, on the outbound side, and names no resource.
func wide(p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) bool {
	match := p.GetMatch()
	switch match.GetContext() {
	case networkingv1.EnvoyFilter_SIDECAR_INBOUND, networkingv1.EnvoyFilter_GATEWAY:
		return false
	}
	switch p.GetApplyTo() {
	case networkingv1.EnvoyFilter_BOOTSTRAP, networkingv1.EnvoyFilter_EXTENSION_CONFIG:
		return false
	case networkingv1.EnvoyFilter_CLUSTER:
		c := match.GetCluster()
		return p.GetPatch().GetOperation() != networkingv1.EnvoyFilter_Patch_ADD && c.GetName() == "" && c.GetService() == ""
	case networkingv1.EnvoyFilter_LISTENER:
		return p.GetPatch().GetOperation() != networkingv1.EnvoyFilter_Patch_ADD && match.GetListener().GetName() == ""
	case networkingv1.EnvoyFilter_ROUTE_CONFIGURATION, networkingv1.EnvoyFilter_VIRTUAL_HOST, networkingv1.EnvoyFilter_HTTP_ROUTE:
		c := match.GetRouteConfiguration()
		return c.GetName() == "" && c.GetVhost().GetName() == ""
	}
	return match.GetListener().GetName() == "" // of filters in listeners
}

// everywhere reads exportTo of Istio's messages, where an empty list means all namespaces.
func everywhere(exportTo []string, namespace string) bool {
	return len(exportTo) == 0 || elsewhere(exportTo, namespace)
}

func elsewhere(exportTo []string, namespace string) bool {
	return slices.ContainsFunc(exportTo, func(to string) bool { return to != "." && to != "~" && to != namespace })
}

func bytes(m proto.Message) int { return proto.Size(m) / perByte }
