// Package isolation checks the hosts and addresses in configuration that one tenant exports to others. A tenant is a
// namespace, or a group of namespaces with one TenantLabel. A tenant may export its own hosts and addresses, and those
// that belong to no other tenant. Any other host or address could divert traffic of other tenants. The rules read one
// normalised record, and look up other objects in a Mesh.
//
// Owns: nothing; all functions are pure.
// Reads: records of ServiceEntries, VirtualServices and Workloads.
// Never: decides what happens to an object that breaks a rule (store/normal does); restricts configuration that only
// proxies of the same tenant see.
package isolation

import (
	"fmt"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/model"
)

// TenantLabel is a label of Namespace objects. Namespaces with the same value form one tenant.
const TenantLabel = "navarch.io/tenant"

// TenantOf returns the tenant of a namespace: "navarch.io/tenant=" and label, or the namespace itself if label is
// empty. The parameter label is the value of the namespace's TenantLabel.
func TenantOf(namespace, label string) string {
	if label != "" {
		return TenantLabel + "=" + label
	}
	return namespace
}

// Rules contains the settings of the rules. Its methods do not change it, so they are safe for concurrent use. The zero
// value has no domain, no ranges, no reserved hosts and no operators.
type Rules struct {
	Domain    string            // DNS suffix of the cluster
	Operators []string          // namespaces that configure the whole mesh, without restrictions
	Ranges    []netip.Prefix    // address ranges of Services and Pods of the clusters
	Given     map[string]string // host or wildcard in lower case -> the only tenant (TenantOf) that may export it
}

// Mesh looks up other objects for the rules. A *model.Service is the record of a Service or of a ServiceEntry. If its
// name is empty, breaches do not name it. The rules do not change the returned lists.
type Mesh interface {
	// Tenant returns the tenant of a namespace, as TenantOf does. The result known is false while the labels of
	// namespaces are not known. The result name is then the namespace itself.
	Tenant(namespace string) (name string, known bool)
	// Services returns the Services and ServiceEntries with exactly this host; wildcards are compared literally.
	Services(host string) []*model.Service
	// Below returns the ServiceEntries with a host that a wildcard covers, in any order and possibly repeated. A
	// wildcard does not cover itself (model.Covers).
	Below(wildcard string) []*model.Service
	// At returns the Services, without ServiceEntries, that have an address. The result pod reports whether a Pod has
	// it.
	At(address netip.Addr) (services []*model.Service, pod bool)
	// OwnPod reports whether a Pod in the record's namespace has an address.
	OwnPod(address netip.Addr) bool
	// Within reports whether a Service or a Pod has an address in a network.
	Within(network netip.Prefix) bool
}

// Breach describes one rule that an object breaks. At most 10 breaches are reported for one object, in the order of its
// fields.
type Breach struct {
	Field, Message string // path of the field in the object; reason without names of other tenants' private objects
	// Whole is the reason with all names, for readers who see everything. If it is empty, Message has all names.
	Whole string
	// Unsure is true if the labels of namespaces are not known. The breach may then be wrong, because both objects may
	// belong to one tenant.
	Unsure bool
	// Listens is true if the breach concerns a port of a ServiceEntry without addresses. The proxy's listener would
	// accept connections to any address.
	Listens bool
}

// maxBreaches is the largest number of breaches reported for one object.
const maxBreaches = 10

// ServiceEntry returns the rules that the record of a ServiceEntry breaks; nil if it breaks no rule. The result is also
// nil if no proxy of another tenant sees the entry, or if it is in a namespace of Operators.
func (r *Rules) ServiceEntry(entry *model.Service, mesh Mesh) []Breach {
	j := r.evaluate(&entry.Head, mesh)
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
			if j.report("spec.addresses", "without an address, proxies whose agents do not answer DNS treat all connections to port "+
				"%d as connections to this host", port.GetNumber()) {
				j.breaches[len(j.breaches)-1].Listens = true
			}
		}
	}
	return j.breaches
}

// VirtualService returns the rules that the record of a VirtualService breaks; nil if it breaks no rule. The rules only
// apply to routes for sidecars (gateway mesh). The result is also nil if no proxy of another tenant sees the
// VirtualService, or if it is in a namespace of Operators.
func (r *Rules) VirtualService(vs *model.VirtualService, mesh Mesh) []Breach {
	j := r.evaluate(&vs.Head, mesh)
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

// WorkloadEntry returns the rules that the record of a WorkloadEntry breaks; nil if it breaks no rule. If a headless
// Service selects the entry, proxies of other tenants listen at its address. DNS names and the address of a Pod in the
// same namespace are allowed. In a namespace of Operators the result is nil.
func (r *Rules) WorkloadEntry(entry *model.Workload, mesh Mesh) []Breach {
	if slices.Contains(r.Operators, entry.Key.Namespace) {
		return nil
	}
	j, address := r.evaluate(&entry.Head, mesh), entry.Spec.GetEndpoint().GetAddress()
	j.address("spec.address", address)
	if a, err := netip.ParseAddr(address); len(j.breaches) == 0 || err == nil && mesh.OwnPod(a.Unmap()) {
		return nil
	}
	for i := range j.breaches {
		j.breaches[i].Unsure = !j.known // without the tenants, the Pods are not known either
	}
	return j.breaches
}

// NetworkGateway returns one breach for a Service whose label names it as the gateway of a network. In a namespace of
// Operators, where such Services are allowed, the result is nil.
func (r *Rules) NetworkGateway(namespace, network string) []Breach {
	if slices.Contains(r.Operators, namespace) {
		return nil
	}
	return []Breach{{Field: "metadata.labels[" + model.NetworkLabel + "]",
		Message: fmt.Sprintf("the gateway of network %q is outside of the system namespace", network)}}
}
