package plan

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/telemetry"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Seen is a view (a group of proxies with equal configuration) with some of its proxies, at the time of a call of
// Planner.Seen.
type Seen struct {
	View    view.View
	Set     *manifest.Set // the planned resources of the proxies; immutable
	Nodes   []view.Node   // sorted by their ids
	handles []*Handle     // handles of Nodes, in the same order
}

// Origins contains the objects that decided the resources of a view's proxies. For the resources of a host, see
// HostOrigins. The objects are shared and must not be changed.
type Origins struct {
	Snapshot *mirror.Snapshot // the snapshot at which the resources are planned
	// Listeners maps names of listeners to their Specs (the inputs of the build), as Explain returns them. It contains
	// inbound listeners and the listeners of a gateway.
	Listeners   map[string][]any
	Telemetries []*model.Telemetry // in ascending precedence
}

// HostName is the name of a host of a scope.
type HostName struct {
	Name string
	// Ruled is true if a DestinationRule applies to the host, or a VirtualService names it.
	Ruled bool
}

// HostOrigins contains the objects that decided how the proxies of a view reach a host. The objects are shared and must
// not be changed.
type HostOrigins struct {
	Name       string
	Service    *model.Service           // nil if the proxies see no service with this host
	Joined     []*model.Service         // further ServiceEntries that add their ports to the host
	Alias      *model.Service           // the ExternalName Service that makes the host an alias; nil for other hosts
	Clusters   []any                    // the Specs of the host's clusters
	Routed     []host.Routed            // the host's virtual hosts
	Claims     []host.Claim             // the VirtualServices that may decide the host's routes
	Connecting []*model.VirtualService  // the merged VirtualServices with tcp or tls rules for the host
	Passed     []*model.DestinationRule // the DestinationRules for the host that are not merged into its policy
	Rules      []*model.DestinationRule // the merged DestinationRules
}

// Seen returns the views of the proxies for which the function selects returns true. They are sorted by the id of their
// first node. Views without a selected proxy are left out.
func (p *Planner) Seen(selects func(view.Node, view.View) bool) (all []Seen) {
	for _, pl := range p.views {
		s := Seen{View: pl.view, Set: pl.set.Load()}
		for h := range pl.handles {
			if selects(*h.Node, pl.view) {
				s.handles = append(s.handles, h)
			}
		}
		if len(s.handles) == 0 {
			continue
		}
		slices.SortFunc(s.handles, func(a, b *Handle) int { return strings.Compare(a.Node.ID, b.Node.ID) })
		for _, h := range s.handles {
			s.Nodes = append(s.Nodes, *h.Node)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Seen) int { return strings.Compare(a.Nodes[0].ID, b.Nodes[0].ID) })
	return all
}

// Seen returns the result of Planner.Seen for the proxies of this loop. It returns nil without a plan and after the
// loop's end. The function selects runs in the loop's goroutine.
func (l *Loop) Seen(selects func(view.Node, view.View) bool) (all []Seen) {
	l.inspect(func() {
		if l.planner != nil {
			all = l.planner.Seen(selects)
		}
	})
	return all
}

// plannedOf returns a proxy of s that is still joined, with its view. If all of them have left, both results are nil.
func (p *Planner) plannedOf(s Seen) (*Handle, *planned) {
	for _, h := range s.handles {
		if _, is := p.handles[h]; is {
			return h, h.planned.Load()
		}
	}
	return nil, nil
}

// variation returns the differences of the view's variant from the scope's hosts. It is nil if the view has no variant.
func (pl *planned) variation() *host.Variation {
	if pl.variant == nil {
		return nil
	}
	return pl.variant.Variation
}

// Origins returns the objects that decided the resources of a view's proxies. The result ok is false if all proxies in
// s have left.
func (p *Planner) Origins(s Seen) (o Origins, ok bool) {
	h, pl := p.plannedOf(s)
	if h == nil {
		return o, false
	}
	o.Snapshot, o.Listeners = p.Snapshot(), map[string][]any{}
	o.Telemetries = telemetry.For(p.input, pl.view.Scope.Namespace, pl.view.Inputs.Telemetry)
	for r := range h.Set().Types[xds.Listener].All() {
		of := xds.Ref{Type: xds.Listener, Name: r.Name}
		if specs := pl.workload.Explain(of); specs != nil {
			o.Listeners[r.Name] = specs
		} else if pl.view.Scope.Kind == view.Router {
			o.Listeners[r.Name] = p.Explain(h, xds.Listener, r.Name)
		}
	}
	return o, true
}

// Origins returns the result of Planner.Origins for proxies of this loop. The result ok is also false without a plan
// and after the loop's end.
func (l *Loop) Origins(s Seen) (o Origins, ok bool) {
	l.inspect(func() {
		if l.planner != nil {
			o, ok = l.planner.Origins(s)
		}
	})
	return o, ok
}

// ScopeHosts returns the hosts that the proxies of a view see (their scope), sorted by name. It returns nil if all
// proxies in s have left. Hosts with neither a service, nor an alias, nor rules are left out. The cost grows with the
// number of hosts in the scope.
func (p *Planner) ScopeHosts(s Seen) (all []HostName) {
	h, pl := p.plannedOf(s)
	if h == nil {
		return nil
	}
	hosts := pl.scope.hosts
	hosts.Names(func(name string) {
		of := hosts.Get(name)
		if ruled := hosts.Ruled(of); ruled || of.Service != nil || of.Alias() != nil {
			all = append(all, HostName{name, ruled})
		}
	})
	slices.SortFunc(all, func(a, b HostName) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ScopeHosts returns the result of Planner.ScopeHosts for proxies of this loop. It returns nil without a plan and after
// the loop's end.
func (l *Loop) ScopeHosts(s Seen) (all []HostName) {
	l.inspect(func() {
		if l.planner != nil {
			all = l.planner.ScopeHosts(s)
		}
	})
	return all
}

// HostOrigins returns the objects that decided how the proxies of a view reach the hosts with the given names, in the
// order of names. Hosts that these proxies do not see are left out. The result is nil if all proxies in s have left.
func (p *Planner) HostOrigins(s Seen, names []string) (all []HostOrigins) {
	h, pl := p.plannedOf(s)
	if h == nil {
		return nil
	}
	t, v := pl.scope.hosts, pl.variation()
	var hosts host.Hosts = t
	if v != nil {
		hosts = v
	}
	routed := map[string][]host.Routed{}
	for _, r := range pl.scope.front.Serving(func(name string) bool { return slices.Contains(names, name) }, v) {
		routed[r.Spec.Host] = append(routed[r.Spec.Host], r)
	}
	for _, name := range names {
		of := hosts.Get(name)
		if of == nil && routed[name] == nil {
			continue
		}
		o := HostOrigins{Name: name, Routed: routed[name], Claims: t.Claims(name)}
		if of != nil {
			o.Service, o.Joined, o.Alias, o.Clusters = of.Service, of.Joined(), of.Alias(), of.Clusters()
			o.Connecting, o.Passed, o.Rules = t.Connected(name), t.RulesPassed(of), of.Rules.All()
		}
		all = append(all, o)
	}
	return all
}

// manyHosts is the number of hosts that Loop.HostOrigins reads at once. Planning waits meanwhile, so the number is
// small.
const manyHosts = 64

// HostOrigins returns the result of Planner.HostOrigins for proxies of this loop. It reads 64 names at a time, and the
// plan may change in between. It returns nil without a plan and after the loop's end.
func (l *Loop) HostOrigins(s Seen, names []string) (all []HostOrigins) {
	for some := range slices.Chunk(names, manyHosts) {
		l.inspect(func() {
			if l.planner != nil {
				all = append(all, l.planner.HostOrigins(s, some)...)
			}
		})
	}
	return all
}

// ServedHosts returns the hosts of all virtual hosts of a view, sorted, each once. It returns nil if all proxies in s
// have left.
func (p *Planner) ServedHosts(s Seen) (names []string) {
	h, pl := p.plannedOf(s)
	if h == nil {
		return nil
	}
	for _, r := range pl.scope.front.Serving(func(string) bool { return true }, pl.variation()) {
		names = append(names, r.Spec.Host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ServedHosts returns the result of Planner.ServedHosts for proxies of this loop. It returns nil without a plan and
// after the loop's end.
func (l *Loop) ServedHosts(s Seen) (names []string) {
	l.inspect(func() {
		if l.planner != nil {
			names = l.planner.ServedHosts(s)
		}
	})
	return names
}
