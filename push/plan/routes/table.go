package routes

import (
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/problem"
)

// Table contains the route configurations of a scope. New and Fork create it. It is not safe for concurrent use.
type Table struct {
	Scope
	names   Names
	configs map[string]*routeConfig // by name
	// changed has the names of the route configurations that the current step touches. Each name has the ids of the
	// virtual hosts to be planned again.
	changed map[string]map[string]bool
	pieces  []*xds.Fragment // reused buffer of plan
	ids     []string        // reused buffer of rivals
	// sets contains the long lists of domains that the current step searches, as sets.
	sets map[intern.List[string]]map[string]bool
	// own marks the route configurations that belong to this table alone. All other route configurations are shared
	// with forks, which other goroutines may use. The table copies a shared route configuration before it changes it.
	own *editor
}

// editor identifies the table that may change a route configuration in place.
type editor struct{ _ byte }

// routeConfig is one route configuration. The table retains it while it has virtual hosts or users (listeners that
// request it). The table publishes it only while it has users.
type routeConfig struct {
	layer.Unit
	Config
	of      *editor
	users   int                // listeners that request it
	entries layer.Table[entry] // by id
	runs    runs
	reading map[string]*entry // by id, the entries whose rules read labels of the proxy
	tail    []tailSpec        // virtual hosts that EnvoyFilters add, and the catch-all; nil until planned
	added   []vhost.Added     // virtual hosts that EnvoyFilters add
	taken   map[string]bool   // the domains of added
	// complete is true if the fragments of all entries are built. Without users, entries have Specs, but their
	// fragments are not built.
	complete bool
}

// entry is a virtual host with its planned Spec and fragment. Scopes share planned entries and never change them.
type entry struct {
	VirtualHost
	spec vhost.Spec
	frag *xds.Fragment // nil if it is not built yet, or left out
}

// sharedEntry is the key under which scopes share an entry (layer.Share).
type sharedEntry entry

// equal reports whether two entries are equal.
func (en *entry) equal(o *entry) bool { return *en == *o }

// tailSpec is the Spec and fragment of a virtual host that belongs to no host of the scope.
type tailSpec struct {
	spec pool.FragmentSpec
	frag *xds.Fragment
}

// New returns a table for a scope. It has no route configurations yet. A step plans one change of the configuration. In
// each step, the caller calls Enter, Leave and Use, then Finish, then Vary for each variation (proxies with certain
// inputs), and then Done.
func New(of Scope, names Names) *Table {
	return &Table{Scope: of, names: names, configs: map[string]*routeConfig{}, changed: map[string]map[string]bool{}, own: &editor{}}
}

// Fork returns a copy of the table for another Scope and Names. Later changes of one of the two tables do not affect
// the other table, and another goroutine may use the copy. Fork must not be called within a step.
func (t *Table) Fork(of Scope, names Names) *Table {
	t.own = &editor{}
	next := New(of, names)
	next.configs = maps.Clone(t.configs)
	return next
}

// Use changes the number of listeners that request a route configuration. The parameter delta is added to the number,
// and may be negative. A missing route configuration is created. The next Finish plans the route configuration.
func (t *Table) Use(c Config, delta int) {
	t.get(c).users += delta
	t.mark(c.Name)
}

// Enter adds a virtual host to a route configuration, or replaces the virtual host with the same ID. A missing route
// configuration is created. The next Finish plans this virtual host, and the virtual hosts that compete for its changed
// domains. Enter calls pause, which must not be nil, between two pieces of the work.
func (t *Table) Enter(c Config, vh VirtualHost, pause func()) {
	rc, en := t.get(c), &entry{VirtualHost: vh}
	old := rc.entries.Get(vh.ID)
	if old != nil {
		en.spec, en.frag = old.spec, old.frag
	} else {
		rc.runs.touch(vh.ID)
	}
	if old == nil || *old != *en {
		delete(rc.reading, vh.ID)
		rc.store(en)
	}
	t.markEntry(c.Name, vh.ID)
	t.markRivals(rc, old, en, pause)
}

// Leave removes the virtual host with an ID from a route configuration. The next Finish plans the virtual hosts that
// compete for the domains of the removed virtual host. If the ID is unknown, Leave has no effect on the plan. Leave
// calls pause, which must not be nil, between two pieces of the work.
func (t *Table) Leave(c Config, id string, pause func()) {
	rc := t.get(c)
	old := rc.entries.Get(id)
	rc.entries.Put(id, nil)
	delete(rc.reading, id)
	rc.runs.remove(id)
	t.Problems.Set(unitOf(rc, id), nil)
	t.markEntry(c.Name, id)
	t.markRivals(rc, old, nil, pause)
}

// Changed reports whether the step has touched any route configuration.
func (t *Table) Changed() bool { return len(t.changed) > 0 }

// Finish plans the route configurations that the step has touched. It calls pause, which must not be nil, between two
// pieces of the work. Problems are stored in Scope.Problems.
func (t *Table) Finish(pause func()) {
	for _, name := range slices.Sorted(maps.Keys(t.changed)) {
		t.replan(name, pause)
	}
}

// Done ends the step. Changed then returns false.
func (t *Table) Done() {
	t.sets = nil
	if t.Changed() {
		t.changed = map[string]map[string]bool{}
	}
}

// unitOf returns the key in Scope.Problems for the problems of a virtual host.
func unitOf(rc *routeConfig, id string) string { return "route " + rc.Name + " " + id }

// mark marks a route configuration as touched by the step.
func (t *Table) mark(name string) {
	if t.changed[name] == nil {
		t.changed[name] = map[string]bool{}
	}
}

// markEntry marks a virtual host to be planned again.
func (t *Table) markEntry(name, id string) {
	t.mark(name)
	t.changed[name][id] = true
}

// get returns a route configuration that the table may change in place. A missing route configuration is created.
func (t *Table) get(c Config) *routeConfig {
	rc := t.configs[c.Name]
	switch {
	case rc == nil:
		rc = &routeConfig{Config: c, of: t.own, reading: map[string]*entry{}, taken: map[string]bool{}}
		t.configs[c.Name] = rc
		t.addTo(rc)
	case rc.of != t.own:
		copied := *rc
		copied.of, copied.entries, copied.runs = t.own, rc.entries.Copy(), slices.Clone(rc.runs)
		copied.reading = maps.Clone(rc.reading)
		rc = &copied
		t.configs[c.Name] = rc
	}
	return rc
}

// store stores an entry in place of the entry with the same id.
func (rc *routeConfig) store(en *entry) {
	rc.entries.Put(en.ID, en)
	if en.Reads.Len() > 0 {
		rc.reading[en.ID] = en
	}
}

// addTo collects the virtual hosts that EnvoyFilters add to a route configuration. Of two virtual hosts with a common
// domain, the first is used, and a problem is reported for the second.
func (t *Table) addTo(rc *routeConfig) {
	var found []input.Problem
	for _, p := range t.Patches {
		if !patch.AddsVirtualHost(p, t.matched(rc)) {
			continue
		}
		spec := vhost.Added{Patch: p}
		names := spec.Domains()
		if slices.ContainsFunc(names, func(d string) bool { return rc.taken[d] || d == "*" && rc.OneHost }) {
			at := fmt.Sprintf("spec.configPatches[%d].patch.value.domains", p.Index)
			found = append(found, input.Problem{Key: p.Filter.Key, Field: at, Code: problem.Duplicate, Severity: problem.Error,
				Message: "route configuration " + rc.Name + " has one of them already; the virtual host is left out"})
			continue
		}
		for _, d := range names {
			rc.taken[d] = true
		}
		rc.added = append(rc.added, spec)
	}
	t.Problems.Set("added "+rc.Name, found)
}

// matched returns the properties of a route configuration that EnvoyFilters match.
func (t *Table) matched(rc *routeConfig) patch.RouteConfig {
	return patch.RouteConfig{Name: rc.Name, Port: rc.Port, ServerPorts: rc.ServerPorts, Context: t.Hosts.Side()}
}

// Len returns the number of virtual hosts that were entered in a route configuration, or 0 without the route
// configuration. The number includes virtual hosts that are left out of the published route configuration.
func (t *Table) Len(c Config) int {
	if rc := t.configs[c.Name]; rc != nil {
		return rc.entries.Len()
	}
	return 0
}

// Has reports whether a virtual host with an ID was entered in a route configuration.
func (t *Table) Has(c Config, id string) bool {
	rc := t.configs[c.Name]
	return rc != nil && rc.entries.Get(id) != nil
}
