// Package host contains the host table of a scope (view.Scope), which is a group of proxies with the same outbound
// configuration. The table contains the hosts and aliases that the scope sees, with their services, rules, clusters and
// assignments. It also resolves routes to destinations. Fronts (the parts of the plan for one kind of proxy) derive
// listeners and route configurations from the table, and define the form of clusters and assignments.
//
// Owns: the hosts of each scope, with their clusters and assignments.  Reads: the planner's input (plan/input).  Never:
// plans listeners or route configurations; distinguishes kinds of proxies, except by a Form.
//
// A change is planned in one step. The planner calls Resolve or Follow for each host that the change concerns, and then
// EndStep. Within the step these hosts may change in place. After EndStep they are immutable values that scopes share.
//
// Proxies of a scope may differ in inputs (labels, locality, network) that some rules read. For each combination of
// inputs a Variation contains the hosts that differ. The table itself is for proxies without inputs.
//
// Clusters of gateways have no endpoints that lead to the gateway's own Pod or Node (destinations.go).
//
// The members (endpoints) of a cluster are the same for proxies of all networks. If an endpoint is in another network,
// the Spec of the assignment names the network of the proxies (endpoint.Horizon, network.go). So proxies of two
// networks have different assignments, and different clusters of DNS services, in the same scope. Gateways between
// networks are records of a separate kind (NetworkGateways), so edits of other Services do not change them.
//
// Listeners and clusters of headless services depend on the set of endpoints, and not on their health. So after a
// change of readiness only assignments are planned (the fast path). After a change of addresses, the listeners at these
// addresses are planned too.
package host

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Table contains the hosts of one scope.
type Table struct {
	in      *input.Input
	layer   *layer.Layer // contains the clusters and assignments
	key     view.Scope
	form    Form
	imports []*Imports
	patches input.PatchSet

	hosts    layer.Table[Host]
	renewed  map[string]*Host // the hosts planned in this step, as they were before it; nil for new hosts
	lookups  lookups
	guard    *guard // nil without Form.Guarded
	problems input.Problems
	pause    func() // called between two clusters or assignments; may be nil
}

// Host is one host of a scope. It is immutable after the step in which it was planned, and scopes share it.
type Host struct {
	Name    string         // a DNS name or wildcard
	Service *model.Service // nil if the host is an alias, or if the scope sees no service of the host
	Rules   Rules          // the DestinationRules for proxies without inputs

	joined    intern.List[*model.Service] // further ServiceEntries that define ports of the host (Joined)
	clusters  []clusterUnit
	endpoints []layer.Unit
	selectors []string       // label keys that workloadSelectors of the rules compare
	reads     view.Reads     // inputs that the rules read; all other fields are for proxies without inputs
	placed    bool           // the clusters depend on the proxy's place (such as its network or locality)
	alias     *model.Service // the Service of type ExternalName, if the host is an alias; otherwise nil

	varied *versions // the versions of this host in variations; nil within its step, and if the rules read no inputs
}

// New returns a table without hosts for the scope with a key. The scope sees the hosts that are exported to its
// namespace and that one of the imports includes. The last parameter is the layer for the planned clusters and
// assignments. Only one goroutine at a time may use a table. The table keeps imports and changes them (Pull).
func New(in *input.Input, key view.Scope, form Form, imports []*Imports, patches input.PatchSet, to *layer.Layer) *Table {
	t := &Table{in: in, layer: to, key: key, form: form, imports: imports, patches: patches,
		renewed: map[string]*Host{}, problems: input.Problems{}}
	if form.Guarded {
		t.guard = newGuard(in, key.Edge.Value().Services)
	}
	return t
}

// Side returns the EnvoyFilter context of the table's clusters (Form.Side).
func (t *Table) Side() networkingv1.EnvoyFilter_PatchContext { return t.form.Side }

// Fork returns a copy of the table with another scope key, other imports and another layer. The copy and the original
// share immutable hosts and the function that Pauses has set. Changes of one table do not affect the other. Fork must
// not be called within a step.
func (t *Table) Fork(key view.Scope, imports []*Imports, to *layer.Layer) *Table {
	next := *t
	next.key, next.imports, next.layer = key, imports, to
	next.hosts, next.renewed, next.lookups, next.problems = t.hosts.Fork(), map[string]*Host{}, lookups{}, t.problems.Clone()
	next.guard = t.guard.fork()
	return &next
}

// ImportsEverything reports whether the scope sees all hosts that are exported to it. It is true for a table without
// imports.
func (t *Table) ImportsEverything() bool {
	return !slices.ContainsFunc(t.imports, func(im *Imports) bool { return !im.Everything() })
}

// Read replaces the input that the table plans with.
func (t *Table) Read(in *input.Input) { t.in = in }

// Len returns the number of hosts.
func (t *Table) Len() int { return t.hosts.Len() }

// Pauses sets a function that the table calls between two clusters or assignments, so that the planner can do urgent
// work. nil removes the function.
func (t *Table) Pauses(f func()) { t.pause = f }

// yield calls the function that was set by Pauses.
func (t *Table) yield() {
	if t.pause != nil {
		t.pause()
	}
}

// Get returns a host by its name, or nil if the scope has no such host.
func (t *Table) Get(name string) *Host { return t.hosts.Get(name) }

// Names calls f with the name of each host, in no order.
func (t *Table) Names(f func(name string)) {
	for name := range t.hosts.All() {
		f(name)
	}
}

// Problems returns the problems that were found when the hosts were last planned. The caller must not change the
// result. The table changes it when it plans again.
func (t *Table) Problems() input.Problems { return t.problems }

// decided is the set of types for which Resolve decides a host's service and rules again. Each change of a service or
// rule touches at least one of these types (push/plan, affects).
const decided = input.CDS | input.EDS

// Resolve decides the service, the alias target and the rules of a host. It plans the host's clusters if types has
// input.CDS, and its assignments if types has input.EDS. If types has neither, an existing host stays unchanged,
// because the change concerns only listeners and routes. A missing host is always added.
func (t *Table) Resolve(name string, types input.Types) {
	if !types.Has(decided) && t.hosts.Get(name) != nil {
		return
	}
	h := t.renew(name)
	if types&decided == decided {
		t.guard.forget(name)
	}
	h.Service, h.Rules, h.selectors, h.alias = t.serviceFor(name), Rules{}, nil, nil
	h.joined = joined(t.in, name, h.Service)
	var found []input.Problem
	if h.Service != nil && h.Service.Spec.GetAliasFor() != "" {
		h.Service, h.alias = nil, h.Service
		t.local(h.alias, "spec.externalName", h.alias.Spec.GetAliasFor(), &found)
	}
	t.problems.Set("alias "+name, found)
	if h.Service != nil {
		h.Rules, h.selectors = t.rulesFor(name, h.Service, view.Inputs{})
	}
	if types.Has(input.CDS) {
		t.planClusters(h)
	}
	if types.Has(input.EDS) {
		t.planEndpoints(h)
	}
}

// Follow plans again the parts of a host that depend on its endpoints. The host keeps its service and rules. Follow
// plans assignments if types has input.EDS. It plans clusters if types has input.CDS, since DNS clusters contain
// endpoints, and other clusters contain the identities of endpoints. The result is false, and nothing is planned, if
// the table has no such host or the host has no service.
func (t *Table) Follow(name string, types input.Types) bool {
	if h := t.hosts.Get(name); h == nil || h.Service == nil {
		return false
	}
	h := t.renew(name)
	if types.Has(input.CDS) {
		t.planClusters(h)
	}
	if types.Has(input.EDS) {
		t.planEndpoints(h)
	}
	return true
}

// Forget removes a host, unless the host has a service, an alias target, clusters or assignments. The result is true if
// the table does not have the host afterwards, also if the table never had the host.
func (t *Table) Forget(name string) bool {
	h := t.hosts.Get(name)
	if h != nil && (h.Service != nil || h.alias != nil || len(h.clusters)+len(h.endpoints) > 0) {
		return false
	}
	t.step(name, h)
	t.hosts.Put(name, nil)
	return true
}

// renew stores a mutable copy of a host in the table, for this step, and returns the copy. For an unknown name it
// stores and returns a new host.
func (t *Table) renew(name string) *Host {
	h := &Host{Name: name}
	was := t.hosts.Get(name)
	if was != nil {
		*h = *was
		h.varied = nil
	} else {
		t.lookups.names = nil
	}
	t.step(name, was)
	t.hosts.Put(name, h)
	return h
}

// step records the version that a host had before the step.
func (t *Table) step(name string, was *Host) {
	if _, again := t.renewed[name]; !again {
		t.renewed[name] = was
	}
}

// EndStep ends a step. From then on the hosts of the step are immutable. A host whose content is as before the step
// gets its previous pointer. EndStep returns the names that Resolve and Follow planned, or for which Forget returned
// true, in no order. The result is nil for a step without such names. EndStep calls yield, which must not be nil, once
// for each 64 hosts.
func (t *Table) EndStep(yield func()) (renewed []string) {
	const batch = 64
	for name, was := range t.renewed {
		if renewed = append(renewed, name); len(renewed)%batch == 0 {
			yield()
		}
		switch h := t.hosts.Get(name); {
		case h == nil:
		case was != nil && was.equal(h):
			t.hosts.Put(name, was)
		default:
			if h.reads != (view.Reads{}) {
				h.varied = &versions{}
			}
			t.hosts.Put(name, layer.Share(t.in.Sharing, sharedHost(name), h, (*Host).equal))
		}
	}
	t.renewed = map[string]*Host{}
	return renewed
}

// sharedHost is the key of a host for layer.Share.
type sharedHost string

// equal reports whether two hosts have equal names, services, rules, clusters and assignments. The labels of clusters
// are not compared, because they follow from the selection.
func (h *Host) equal(o *Host) bool {
	sameCluster := func(a, b clusterUnit) bool {
		return a.Unit == b.Unit && a.selection == b.selection && a.setting == b.setting && a.demand == b.demand
	}
	return h.Name == o.Name && h.Service == o.Service && h.joined == o.joined && h.alias == o.alias &&
		h.Rules.equal(o.Rules) && h.reads == o.reads && slices.Equal(h.selectors, o.selectors) &&
		slices.EqualFunc(h.clusters, o.clusters, sameCluster) && slices.Equal(h.endpoints, o.endpoints)
}
