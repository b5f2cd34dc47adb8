// Package host is the host table: which hosts a scope sees, under which names, which service, rules, clusters and
// assignments each has, and what the routes to it mean. Fronts turn it into listeners and route configurations, and
// say in which form clusters and assignments go out.
//
// Owns: the hosts of each scope, and their clusters and assignments in its layer.  Reads: plan/input.  Never: a listener, a route
// configuration; what a single kind of proxy needs.
//
// A step resolves the hosts that a change touches (Resolve, Follow), and ends with EndStep: until then hosts of the
// step may change in place, from then on they are values that scopes share.
//
// The split of networks is planned, not stored. The members of a cluster are the same for all proxies. The Spec of an
// assignment names the network that it is seen from (endpoint.Horizon, network.go), if any endpoint lies in another
// network. So assignments, and clusters of DNS services, split by network, and scopes do not. Gateways of networks
// are records of a kind of their own (NetworkGateways), which edits of other Services leave alone.
//
// Listeners and clusters of headless services depend on which endpoints exist, and not on their health. So the
// endpoint fast path plans all of an edit of readiness, and an edit of addresses plans the listeners of those
// addresses alone.
package host

import (
	"slices"
	"weak"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Table is the hosts of one scope.
type Table struct {
	in      *input.Input
	layer   *layer.Layer // where clusters and assignments go
	key     view.Scope
	form    Form
	imports []*Imports
	patches input.PatchSet

	hosts    layer.Table[Host]
	renewed  map[string]*Host // hosts as they were before the step; nil: not there
	lookups  lookups
	problems input.Problems
	pause    func() // called between two clusters or assignments; nil: nothing is
}

// Host is one host as a scope sees it. Scopes share it: it is replaced, never changed, once its step is over.
type Host struct {
	Name    string
	Service *model.Service // nil: only VirtualServices name it, or it is an alias
	Rules   Rules

	joined    intern.List[*model.Service] // ServiceEntries whose ports it has too (see joined)
	clusters  []clusterUnit
	endpoints []layer.Unit
	selectors []string       // label keys that workloadSelectors of its rules compare
	reads     view.Reads     // inputs of the proxy that its rules read; the host itself is as proxies without any see it
	placed    bool           // there are endpoints inside its clusters, ordered by the proxy's place
	alias     *model.Service // by which it is another name of a host (ExternalName); nil: it is none

	// varied are the hosts that it became in variations, by what these read of the proxy, as long as some variation has
	// them: the variations of all scopes that share the host share them.
	varied map[view.Inputs]weak.Pointer[Host]
}

// New makes a table without hosts. The scope sees what any of the imports has; what is planned goes to the layer.
func New(in *input.Input, key view.Scope, form Form, imports []*Imports, patches input.PatchSet, to *layer.Layer) *Table {
	return &Table{in: in, layer: to, key: key, form: form, imports: imports, patches: patches, renewed: map[string]*Host{}, problems: input.Problems{}}
}

// Side returns the EnvoyFilter context that the table is for.
func (t *Table) Side() networkingv1.EnvoyFilter_PatchContext { return t.form.Side }

// Fork is a copy for another scope, or for the same one as it will be, whose resources go to another layer. Neither
// changes what both have. Between steps only.
func (t *Table) Fork(key view.Scope, imports []*Imports, to *layer.Layer) *Table {
	next := *t
	next.key, next.imports, next.layer = key, imports, to
	next.hosts, next.renewed, next.lookups, next.problems = t.hosts.Fork(), map[string]*Host{}, lookups{}, t.problems.Clone()
	return &next
}

// ImportsEverything says whether the scope sees all that is exported to it.
func (t *Table) ImportsEverything() bool {
	return !slices.ContainsFunc(t.imports, func(im *Imports) bool { return !im.Everything() })
}

// Read has the table plan with another input from now on.
func (t *Table) Read(in *input.Input) { t.in = in }

// Len is the number of hosts.
func (t *Table) Len() int { return t.hosts.Len() }

// Pauses has f called between two clusters or assignments, where others may have their turn; nil: nothing is.
func (t *Table) Pauses(f func()) { t.pause = f }

// rest lets others have their turn.
func (t *Table) rest() {
	if t.pause != nil {
		t.pause()
	}
}

// Get is a host by its name; nil: the scope knows none.
func (t *Table) Get(name string) *Host { return t.hosts.Get(name) }

// Names calls f with the name of each host.
func (t *Table) Names(f func(name string)) {
	for name := range t.hosts.All() {
		f(name)
	}
}

// Problems are what was found while planning, as it is now.
func (t *Table) Problems() input.Problems { return t.problems }

// decided are the types that tell whether a change may give a host another service or other rules: each such change
// touches one of them, or both (push/plan, affects).
const decided = input.CDS | input.EDS

// Resolve decides what a host is in this scope, and plans those of its clusters and assignments that `what` names.
// Where it names neither, and the host is there, it stays as it is: what is said about requests and connections to it
// alone is the front's.
func (t *Table) Resolve(name string, what input.Types) {
	if !what.Has(decided) && t.hosts.Get(name) != nil {
		return
	}
	h := t.renew(name)
	h.Service, h.Rules, h.selectors, h.alias = t.serviceFor(name), Rules{}, nil, nil
	h.joined = joined(t.in, name, h.Service)
	if h.Service != nil && h.Service.Spec.GetAliasFor() != "" {
		h.Service, h.alias = nil, h.Service
	}
	if h.Service != nil {
		h.Rules, h.selectors = t.rulesFor(name, h.Service, view.Inputs{})
	}
	if what.Has(input.CDS) {
		t.planClusters(h)
	}
	if what.Has(input.EDS) {
		t.planEndpoints(h)
	}
}

// Follow plans what depends on a host's endpoints alone: assignments, and clusters (those of DNS services have their
// endpoints in them, others the identities). False: there is no service of this host.
func (t *Table) Follow(name string, what input.Types) bool {
	if h := t.hosts.Get(name); h == nil || h.Service == nil {
		return false
	}
	h := t.renew(name)
	if what.Has(input.CDS) {
		t.planClusters(h)
	}
	if what.Has(input.EDS) {
		t.planEndpoints(h)
	}
	return true
}

// Forget takes out a host of which there is nothing left. False: it has a service, or clusters.
func (t *Table) Forget(name string) bool {
	h := t.hosts.Get(name)
	if h != nil && (h.Service != nil || h.alias != nil || len(h.clusters)+len(h.endpoints) > 0) {
		return false
	}
	t.step(name, h)
	t.hosts.Put(name, nil)
	return true
}

// renew is a host, or a new one of this name, in a copy that the step may change.
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

// step notes what a host was before the step.
func (t *Table) step(name string, was *Host) {
	if _, again := t.renewed[name]; !again {
		t.renewed[name] = was
	}
}

// EndStep ends a step: from now on its hosts are values. What is as it was stays the value that it was. It returns
// the hosts that the step may have brought or taken. rest is called between two lots of hosts.
func (t *Table) EndStep(rest func()) (renewed []string) {
	const lot = 64
	for name, was := range t.renewed {
		if renewed = append(renewed, name); len(renewed)%lot == 0 {
			rest()
		}
		switch h := t.hosts.Get(name); {
		case h == nil:
		case was != nil && was.equal(h):
			t.hosts.Put(name, was)
		default:
			t.hosts.Put(name, layer.Share(t.in.Sharing, sharedHost(name), h, (*Host).equal))
		}
	}
	t.renewed = map[string]*Host{}
	return renewed
}

// sharedHost is the key of layer.Share.
type sharedHost string

func (h *Host) equal(o *Host) bool {
	sameCluster := func(a, b clusterUnit) bool {
		return a.Unit == b.Unit && a.selection == b.selection && a.setting == b.setting && a.demand == b.demand
	} // the labels follow
	return h.Name == o.Name && h.Service == o.Service && h.joined == o.joined && h.alias == o.alias && h.Rules.equal(o.Rules) && h.reads == o.reads && slices.Equal(h.selectors, o.selectors) &&
		slices.EqualFunc(h.clusters, o.clusters, sameCluster) && slices.Equal(h.endpoints, o.endpoints)
}
