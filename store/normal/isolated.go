package normal

import (
	"net/netip"
	"slices"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Isolation has the settings of the isolation of tenants.
type Isolation struct {
	On     bool              // an object that breaks a rule is left out, and not only reported
	Ranges []netip.Prefix    // of the clusters' Services and Pods
	Given  map[string]string // host or wildcard -> tenant that alone may have it
}

// IDs of the names that the isolation of tenants looks up, for Refs. No source emits objects with these IDs.

func isolationID(kind, name string) object.ID {
	return object.ID{Group: object.OwnGroup, Kind: kind, Name: name}
}

// HostID names all Services and ServiceEntries with a host.
func HostID(host string) object.ID { return isolationID("Host", host) }

// BelowID names all ServiceEntries with a host that a wildcard covers.
func BelowID(wildcard string) object.ID { return isolationID("HostsBelow", wildcard) }

// AddressID names all Services and Pods with an address.
func AddressID(a netip.Addr) object.ID { return isolationID("AddressOwner", a.String()) }

// NetworkID names all Services and Pods with an address of a network.
func NetworkID(p netip.Prefix) object.ID { return isolationID("NetworkOwner", p.String()) }

// AsksAddress reports whether an ID names the owners of an address or of a network.
func AsksAddress(id object.ID) bool {
	return id.Group == object.OwnGroup && (id.Kind == "AddressOwner" || id.Kind == "NetworkOwner")
}

// NetworkOf is the network that NetworkID made an ID of; false: it did not make this one.
func NetworkOf(id object.ID) (netip.Prefix, bool) {
	if id.Kind != "NetworkOwner" || id.Group != object.OwnGroup {
		return netip.Prefix{}, false
	}
	network, err := netip.ParsePrefix(id.Name)
	return network, err == nil
}

// TenantID names the tenant of a namespace.
func TenantID(namespace string) object.ID { return isolationID("TenantOf", namespace) }

// Owners finds who has a host or an address, for the rules of package isolation.
type Owners interface {
	Tenant(namespace string) (name string, known bool)
	Services(host string) []*model.Service
	Below(wildcard string) []*model.Service
	At(address netip.Addr) (services []*model.Service, pod bool)
	// OwnPod says whether a Pod of an object's namespace has an address.
	OwnPod(of object.ID, address netip.Addr) bool
	// Within finds an address of a Service or a Pod in a network; the zero Addr if no address is.
	Within(network netip.Prefix) netip.Addr
}

// asked is the isolation.Mesh of one object, which refers to everything that was asked for.
type asked struct {
	Owners
	r *report
}

func (a asked) Tenant(namespace string) (string, bool) {
	a.r.ref(TenantID(namespace))
	return a.Owners.Tenant(namespace)
}

func (a asked) Services(host string) []*model.Service {
	a.r.ref(HostID(host))
	return a.Owners.Services(host)
}

func (a asked) Below(wildcard string) []*model.Service {
	a.r.ref(BelowID(wildcard))
	return a.Owners.Below(wildcard)
}

func (a asked) At(address netip.Addr) ([]*model.Service, bool) {
	a.r.ref(AddressID(address))
	return a.Owners.At(address)
}

func (a asked) OwnPod(address netip.Addr) bool {
	a.r.ref(PodAtID(a.r.id, address.String()))
	return a.Owners.OwnPod(a.r.id, address)
}

// Within refers to the one address that was found where there is one: what comes and goes beside it changes nothing.
func (a asked) Within(network netip.Prefix) bool {
	found := a.Owners.Within(network)
	if found.IsValid() {
		a.r.ref(AddressID(found))
	} else {
		a.r.ref(NetworkID(network))
	}
	return found.IsValid()
}

// isolated reports the rules of isolation that the records of an object break, and leaves out those that break one
// where isolation is on. Endpoints of a ServiceEntry go with it.
func (n *Normalizer) isolated(r *report, obj *object.Object, records []model.Record, ctx Lookup) []model.Record {
	for i, record := range records {
		switch _, alone := record.(*model.NetworkGateways); {
		case !n.breached(r, n.breaches(r, obj, record, ctx)):
		case alone: // the Service is as it was without the label
			return slices.Delete(records, i, i+1)
		default:
			return nil
		}
	}
	return records
}

// breaches lists the rules that a record breaks. Records of most kinds are under none, and cost nothing.
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

// rules returns the rules of the mesh. Its root namespace is the operators', as the system namespace is.
func (n *Normalizer) rules(r *report, ctx Lookup) *isolation.Rules {
	r.mesh = true
	return &isolation.Rules{Domain: n.Domain, Operators: []string{n.SystemNamespace, ctx.Mesh().GetRootNamespace()},
		Ranges: n.Isolation.Ranges, Given: n.Isolation.Given}
}

// breached reports breaches, and says whether the records are left out for them.
func (n *Normalizer) breached(r *report, breaches []isolation.Breach) (out bool) {
	for _, b := range breaches {
		if n.Isolation.On && !b.Unsure {
			r.add(r.problem(problem.NotAllowed, problem.Error, b.Field, "%s: it is left out (--tenant-isolation)", b.Message))
			out = true
			continue
		}
		if b.Listens && slices.ContainsFunc(r.problems,
			func(p object.Problem) bool { return p.Analyzer == problem.ServiceEntryAddressesRequired }) {
			continue // addressesNeeded warns of it
		}
		r.warnf(problem.NotAllowed, b.Field, "%s: with --tenant-isolation it would be left out", b.Message)
	}
	return out
}

// Nobody implements Owners where nothing is known of others.
type Nobody struct{}

// Tenant implements Owners.
func (Nobody) Tenant(namespace string) (string, bool) { return namespace, false }

// Services implements Owners.
func (Nobody) Services(string) []*model.Service { return nil }

// Below implements Owners.
func (Nobody) Below(string) []*model.Service { return nil }

// At implements Owners.
func (Nobody) At(netip.Addr) ([]*model.Service, bool) { return nil, false }

// OwnPod implements Owners.
func (Nobody) OwnPod(object.ID, netip.Addr) bool { return false }

// Within implements Owners.
func (Nobody) Within(netip.Prefix) netip.Addr { return netip.Addr{} }
