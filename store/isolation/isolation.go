// Package isolation decides which names and addresses the configuration that a namespace exports may state: its own,
// and those that no other tenant has. Whatever else it states could take traffic of other tenants. The rules read one
// normalised record and ask a Mesh about others.
//
// Owns: nothing; all functions are pure.  Reads: records of ServiceEntries, VirtualServices and Workloads.  Never:
// decides what happens to an object that breaks a rule (store/normal); configuration that its own tenant alone sees.
package isolation

import (
	"fmt"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/model"
)

// TenantLabel makes one tenant of all namespaces whose Namespace objects have the same value of it.
const TenantLabel = "navarch.io/tenant"

// TenantOf names the tenant of a namespace by the value of its label, which may be empty.
func TenantOf(namespace, label string) string {
	if label != "" {
		return TenantLabel + "=" + label
	}
	return namespace
}

// Rules has the settings of the rules. It is immutable. The zero value knows no ranges, no given hosts and no
// operators.
type Rules struct {
	Domain    string            // DNS suffix of the cluster
	Operators []string          // namespaces whose configuration is the whole mesh's: nothing is refused of theirs
	Ranges    []netip.Prefix    // of the clusters' Services and Pods
	Given     map[string]string // host, in lower case, or wildcard -> name of the tenant that alone may have it
}

// Mesh answers the questions of the rules about other objects. Services are Services and ServiceEntries; the lists
// are not changed.
type Mesh interface {
	// Tenant names the tenant of a namespace: the namespace, or TenantLabel=value. known is false where labels of
	// namespaces are not known.
	Tenant(namespace string) (name string, known bool)
	// Services lists those with exactly this host, as it is written.
	Services(host string) []*model.Service
	// Below lists the ServiceEntries with a host that a wildcard covers.
	Below(wildcard string) []*model.Service
	// At lists the Services with an address; pod says whether a Pod has it.
	At(address netip.Addr) (services []*model.Service, pod bool)
	// OwnPod says whether a Pod of the record's namespace has an address.
	OwnPod(address netip.Addr) bool
	// Within says whether a Service or a Pod has an address of a network.
	Within(network netip.Prefix) bool
}

// Breach is a rule that an object breaks.
type Breach struct {
	Field, Message string
	// Unsure: the labels of the namespaces are not known, and the two may be of one tenant.
	Unsure bool
	// Listens: a port has no address of its own to listen at.
	Listens bool
}

// maxBreaches bounds the breaches of one object that are looked for.
const maxBreaches = 10

// ServiceEntry lists the rules that the record of a ServiceEntry breaks.
func (r *Rules) ServiceEntry(entry *model.Service, mesh Mesh) []Breach {
	j := r.judgement(&entry.Head, mesh)
	if !j.exported(entry.Spec.GetExportTo()) {
		return nil
	}
	for _, host := range entry.Spec.GetHosts() {
		j.host("spec.hosts", host)
	}
	for _, address := range entry.Spec.GetAddresses() {
		j.address("spec.addresses", address)
	}
	if len(entry.Spec.GetAddresses()) > 0 {
		return j.breaches
	}
	for _, port := range entry.Spec.GetPorts() {
		if p := port.GetProtocol(); !model.NamesServer(p) && p != model.Protocol_PROTOCOL_UDP { // UDP is not proxied
			j.breaks("spec.addresses", "without one, proxies whose agents answer no DNS take all connections to port %d for this host's", port.GetNumber())
			j.breaches[len(j.breaches)-1].Listens = true
		}
	}
	return j.breaches
}

// VirtualService lists the rules that the record of a VirtualService breaks. Without rules for sidecars it breaks
// none.
func (r *Rules) VirtualService(vs *model.VirtualService, mesh Mesh) []Breach {
	j := r.judgement(&vs.Head, mesh)
	if !slices.Contains(vs.Spec.GetGateways(), "mesh") || !j.exported(vs.Spec.GetExportTo()) {
		return nil
	}
	for _, host := range vs.Spec.GetHosts() {
		if j.host("spec.hosts", host) {
			j.routed("spec.hosts", host)
		}
	}
	for i, route := range vs.Spec.GetTcp() {
		for k, match := range route.GetMatch() {
			j.subnets(fmt.Sprintf("spec.tcp[%d].match[%d]", i, k), match.GetGateways(), match.GetDestinationSubnets())
		}
	}
	for i, route := range vs.Spec.GetTls() {
		for k, match := range route.GetMatch() {
			j.subnets(fmt.Sprintf("spec.tls[%d].match[%d]", i, k), match.GetGateways(), match.GetDestinationSubnets())
		}
	}
	return j.breaches
}

// WorkloadEntry lists the rules that the record of a WorkloadEntry breaks: proxies of others listen at its address
// where a headless Service selects it. The address of a Pod of its namespace is its own.
func (r *Rules) WorkloadEntry(entry *model.Workload, mesh Mesh) []Breach {
	if slices.Contains(r.Operators, entry.Key.Namespace) {
		return nil
	}
	j, address := r.judgement(&entry.Head, mesh), entry.Spec.GetEndpoint().GetAddress()
	j.address("spec.address", address)
	if a, err := netip.ParseAddr(address); len(j.breaches) == 0 || err == nil && mesh.OwnPod(a.Unmap()) {
		return nil
	}
	for i := range j.breaches {
		j.breaches[i].Unsure = !j.known // who does not know tenants does not know Pods
	}
	return j.breaches
}

// NetworkGateway lists the rules that a Service breaks whose label makes it the gateway of a network.
func (r *Rules) NetworkGateway(namespace, network string) []Breach {
	if slices.Contains(r.Operators, namespace) {
		return nil
	}
	j := &judgement{}
	j.breaks("metadata.labels["+model.NetworkLabel+"]", "the gateway of network %q is outside of the system namespace", network)
	return j.breaches
}
