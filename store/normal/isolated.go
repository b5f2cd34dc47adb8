package normal

import (
	"net/netip"
	"slices"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Isolation configures the rules of package isolation, which prevent tenants from claiming hosts and addresses of other
// tenants. The zero value reports breaches as warnings, and applies all objects.
type Isolation struct {
	On     bool              // true: objects that break a rule are left out, with an error; false: they are applied, with a warning
	Ranges []netip.Prefix    // address ranges of Services and Pods of the clusters
	Given  map[string]string // host or wildcard in lower case -> the only tenant (isolation.TenantOf) that may export it
}

// The functions below return IDs that represent lookups by the isolation rules in the Refs of an object. If the result
// of the lookup changes, the object is normalised again. No source emits objects with these IDs.

// isolationID returns the ID of one lookup.
func isolationID(kind, name string) object.ID {
	return object.ID{Group: object.OwnGroup, Kind: kind, Name: name}
}

// HostID returns the ID of the lookup of all Services and ServiceEntries with a host.
func HostID(host string) object.ID { return isolationID("Host", host) }

// BelowID returns the ID of the lookup of all ServiceEntries with a host that a wildcard covers. The wildcard does not
// cover itself.
func BelowID(wildcard string) object.ID { return isolationID("HostsBelow", wildcard) }

// AddressID returns the ID of the lookup of all Services and Pods with an address.
func AddressID(a netip.Addr) object.ID { return isolationID("AddressOwner", a.String()) }

// NetworkID returns the ID of the lookup of all Services and Pods with an address in a network. Bits beyond the prefix
// are ignored.
func NetworkID(p netip.Prefix) object.ID { return isolationID("NetworkOwner", p.Masked().String()) }

// AsksAddress reports whether an ID is a result of AddressID or NetworkID.
func AsksAddress(id object.ID) bool {
	return id.Group == object.OwnGroup && (id.Kind == "AddressOwner" || id.Kind == "NetworkOwner")
}

// NetworkOf returns the masked network of an ID from NetworkID; the zero Prefix and false for any other ID.
func NetworkOf(id object.ID) (netip.Prefix, bool) {
	if id.Kind != "NetworkOwner" || id.Group != object.OwnGroup {
		return netip.Prefix{}, false
	}
	network, err := netip.ParsePrefix(id.Name)
	return network, err == nil
}

// TenantID returns the ID of the lookup of a namespace's tenant.
func TenantID(namespace string) object.ID { return isolationID("TenantOf", namespace) }

// Owners finds the owners of hosts and addresses, for the rules of package isolation. Results are read-only. Lists may
// be nil, and have no particular order.
type Owners interface {
	// Tenant returns the tenant of a namespace. While the tenant cannot be determined, known is false, and name is the
	// namespace itself.
	Tenant(namespace string) (name string, known bool)
	// Services returns the Services and ServiceEntries with exactly this host.
	Services(host string) []*model.Service
	// Below returns the ServiceEntries with a host that a wildcard covers (model.Covers). A host equal to the wildcard
	// does not count. An entry may be repeated.
	Below(wildcard string) []*model.Service
	// At returns the Services (no ServiceEntries) with an address, and reports whether a Pod has it.
	At(address netip.Addr) (services []*model.Service, pod bool)
	// OwnPod reports whether a Pod in the namespace of an object has an address.
	OwnPod(of object.ID, address netip.Addr) bool
	// Within returns one address of a Service or a Pod in a network, or the zero Addr if it finds no such address.
	Within(network netip.Prefix) netip.Addr
}

// asked implements isolation.Mesh for one object: it records each lookup in the Refs of the object.
type asked struct {
	Owners
	r *report
}

// Tenant returns the tenant of a namespace, and records the lookup.
func (a asked) Tenant(namespace string) (string, bool) {
	a.r.ref(TenantID(namespace))
	return a.Owners.Tenant(namespace)
}

// Services returns the Services and ServiceEntries with a host, and records the lookup.
func (a asked) Services(host string) []*model.Service {
	a.r.ref(HostID(host))
	return a.Owners.Services(host)
}

// Below returns the ServiceEntries with a host that a wildcard covers, and records the lookup.
func (a asked) Below(wildcard string) []*model.Service {
	a.r.ref(BelowID(wildcard))
	return a.Owners.Below(wildcard)
}

// At returns the Services (no ServiceEntries) with an address, and reports whether a Pod has it. It records the
// lookup.
func (a asked) At(address netip.Addr) ([]*model.Service, bool) {
	a.r.ref(AddressID(address))
	return a.Owners.At(address)
}

// OwnPod reports whether a Pod in the namespace of the object has an address, and records the lookup.
func (a asked) OwnPod(address netip.Addr) bool {
	a.r.ref(PodAtID(a.r.id, address.String()))
	return a.Owners.OwnPod(a.r.id, address)
}

// Within reports whether a Service or a Pod has an address in a network. It records the lookup of the address that was
// found, since other addresses in the network do not change the result. Without such an address, it records the lookup
// of the network.
func (a asked) Within(network netip.Prefix) bool {
	found := a.Owners.Within(network)
	if found.IsValid() {
		a.r.ref(AddressID(found))
	} else {
		a.r.ref(NetworkID(network))
	}
	return found.IsValid()
}

// isolated reports the isolation rules that the records of an object break, and returns the remaining records. If
// isolation is on, one record that breaks a rule removes all records of the object. A NetworkGateways record that
// breaks a rule is removed alone.
func (n *Normalizer) isolated(r *report, obj *object.Object, records []model.Record, ctx Lookup) []model.Record {
	for i, record := range records {
		switch _, alone := record.(*model.NetworkGateways); {
		case !n.breached(r, n.breaches(r, obj, record, ctx)):
		case alone: // the Service remains, as if it had no network label
			return slices.Delete(records, i, i+1)
		default:
			return nil
		}
	}
	return records
}

// breaches returns the rules that a record breaks. No rule applies to records of most kinds.
func (n *Normalizer) breaches(r *report, obj *object.Object, record model.Record, ctx Lookup) []isolation.Breach {
	switch t := record.(type) {
	case *model.Service:
		if t.Key.Kind == model.KindServiceEntry {
			return n.rules(r, ctx).ServiceEntry(t, asked{ctx, r})
		}
	case *model.VirtualService:
		return n.rules(r, ctx).VirtualService(t, asked{ctx, r})
	case *model.Workload:
		if t.Spec.FromEntry() {
			return n.rules(r, ctx).WorkloadEntry(t, asked{ctx, r})
		}
	case *model.NetworkGateways:
		if network := obj.Labels[model.NetworkLabel]; network != "" {
			rules := isolation.Rules{Operators: []string{n.SystemNamespace}}
			return rules.NetworkGateway(obj.ID.Namespace, network)
		}
	}
	return nil
}

// rules returns the isolation rules of the mesh. The operators own its root namespace and the system namespace.
func (n *Normalizer) rules(r *report, ctx Lookup) *isolation.Rules {
	r.mesh = true
	return &isolation.Rules{Domain: n.Domain, Operators: []string{n.SystemNamespace, ctx.Mesh().GetRootNamespace()},
		Ranges: n.Isolation.Ranges, Given: n.Isolation.Given}
}

// breached reports breaches, and returns true if isolation is on and a breach is certain (not Unsure).
func (n *Normalizer) breached(r *report, breaches []isolation.Breach) (out bool) {
	for _, b := range breaches {
		if n.Isolation.On && !b.Unsure {
			r.add(r.breach(problem.Error, b, ": it is left out (--tenant-isolation)"))
			out = true
			continue
		}
		if b.Listens && slices.ContainsFunc(r.problems,
			func(p object.Problem) bool { return p.Analyzer == problem.ServiceEntryAddressesRequired }) {
			continue // addressesNeeded has warned of it
		}
		r.add(r.breach(problem.Warning, b, ": with --tenant-isolation it would be left out"))
	}
	return out
}

// breach returns the problem of a breach. The parameter what is a text that is appended to the reason.
func (r *report) breach(severity problem.Severity, b isolation.Breach, what string) object.Problem {
	p := r.problem(problem.NotAllowed, severity, b.Field, "%s", b.Message+what)
	if b.Whole != "" {
		p.Whole = b.Whole + what
	}
	return p
}

// Nobody implements Owners without objects. Tenants are not known, and hosts and addresses have no owners.
type Nobody struct{}

// Tenant returns the namespace and false.
func (Nobody) Tenant(namespace string) (string, bool) { return namespace, false }

// Services returns nil.
func (Nobody) Services(string) []*model.Service { return nil }

// Below returns nil.
func (Nobody) Below(string) []*model.Service { return nil }

// At returns nil and false.
func (Nobody) At(netip.Addr) ([]*model.Service, bool) { return nil, false }

// OwnPod returns false.
func (Nobody) OwnPod(object.ID, netip.Addr) bool { return false }

// Within returns the zero Addr.
func (Nobody) Within(netip.Prefix) netip.Addr { return netip.Addr{} }
