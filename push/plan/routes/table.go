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
	"navarch.io/navarch/store/problem"
)

// Table is the route configurations of a scope. It belongs to the goroutine of the planner.
type Table struct {
	Scope
	names   Names
	configs map[string]*routeConfig    // by name
	changed map[string]map[string]bool // by name, the route configurations of this step, with the ids that are to be decided again
	pieces  []*xds.Fragment            // buffer of plan
	ids     []string                   // buffer of rivals
	// own marks the route configurations that belong to this table alone. A table copies the others, which it shares with
	// its forks, before it changes them.
	own *editor
}

// editor is an identity under which route configurations may be changed in place.
type editor struct{ _ byte }

// routeConfig is one route configuration. The table keeps it while it has virtual hosts or users, and publishes it
// while it has users.
type routeConfig struct {
	layer.Unit
	Config
	of      *editor
	users   int                // listeners that ask for it
	entries layer.Table[entry] // by id
	runs    runs
	reading map[string]*entry // those whose rules read labels of the proxy, by id
	tail    []tailSpec        // virtual hosts that EnvoyFilters add, and the catch-all; nil: not planned yet
	added   []vhost.Added     // virtual hosts that EnvoyFilters add
	taken   map[string]bool   // the domains of added
	// complete: the fragments of all entries are built. Without users the entries are decided, and built later.
	complete bool
}

// entry is a virtual host and what was planned of it. Scopes share it: it is replaced, never changed, once it is
// planned.
type entry struct {
	VirtualHost
	spec vhost.Spec
	frag *xds.Fragment // nil: not built, or left out
}

// sharedEntry is the key of layer.Share.
type sharedEntry entry

func (en *entry) equal(o *entry) bool { return *en == *o }

// tailSpec is the Spec and fragment of a virtual host that follows those of the hosts.
type tailSpec struct {
	spec pool.FragmentSpec
	frag *xds.Fragment
}

// New makes a table without route configurations.
func New(of Scope, names Names) *Table {
	return &Table{Scope: of, names: names, configs: map[string]*routeConfig{}, changed: map[string]map[string]bool{}, own: &editor{}}
}

// Fork returns a copy for another scope. Neither table changes what both have. Between steps only.
func (t *Table) Fork(of Scope, names Names) *Table {
	t.own = &editor{}
	next := New(of, names)
	next.configs = maps.Clone(t.configs)
	return next
}

// Use adds `by` to the number of listeners that ask for a route configuration.
func (t *Table) Use(c Config, by int) {
	t.get(c).users += by
	t.mark(c.Name)
}

// Enter puts a virtual host into a route configuration, in place of the one with its id. Rivals of its domains are
// decided again.
func (t *Table) Enter(c Config, vh VirtualHost) {
	rc, en := t.get(c), &entry{VirtualHost: vh}
	old := rc.entries.Get(vh.ID)
	if old != nil {
		en.spec, en.frag = old.spec, old.frag
	} else {
		rc.runs.touch(vh.ID)
	}
	if old == nil || *old != *en {
		delete(rc.reading, vh.ID)
		rc.hold(en)
	}
	t.markEntry(c.Name, vh.ID)
	t.markRivals(rc, old, en)
}

// Leave removes a virtual host from a route configuration. Rivals of its domains are decided again.
func (t *Table) Leave(c Config, id string) {
	rc := t.get(c)
	old := rc.entries.Get(id)
	rc.entries.Put(id, nil)
	delete(rc.reading, id)
	rc.runs.remove(id)
	t.Problems.Set(unitOf(rc, id), nil)
	t.markEntry(c.Name, id)
	t.markRivals(rc, old, nil)
}

// Changed says whether the step has touched a route configuration.
func (t *Table) Changed() bool { return len(t.changed) > 0 }

// Finish plans the route configurations that the step has touched; pause is called between two pieces of the work.
func (t *Table) Finish(pause func()) {
	for _, name := range slices.Sorted(maps.Keys(t.changed)) {
		t.replan(name, pause)
	}
}

// Done ends the step.
func (t *Table) Done() {
	if t.Changed() {
		t.changed = map[string]map[string]bool{}
	}
}

// unitOf names a virtual host among the units of input.Problems.
func unitOf(rc *routeConfig, id string) string { return "route " + rc.Name + " " + id }

// mark marks a route configuration as touched by the step.
func (t *Table) mark(name string) {
	if t.changed[name] == nil {
		t.changed[name] = map[string]bool{}
	}
}

// markEntry marks a virtual host to be decided again.
func (t *Table) markEntry(name, id string) {
	t.mark(name)
	t.changed[name][id] = true
}

// get returns a route configuration that the table may change in place. It is made if it is missing.
func (t *Table) get(c Config) *routeConfig {
	rc := t.configs[c.Name]
	switch {
	case rc == nil:
		rc = &routeConfig{Config: c, of: t.own, reading: map[string]*entry{}, taken: map[string]bool{}}
		t.configs[c.Name] = rc
		t.addTo(rc)
	case rc.of != t.own:
		copied := *rc
		copied.of, copied.entries, copied.reading, copied.runs = t.own, rc.entries.Fork(), maps.Clone(rc.reading), slices.Clone(rc.runs)
		rc = &copied
		t.configs[c.Name] = rc
	}
	return rc
}

// hold stores an entry in place of the one with its id.
func (rc *routeConfig) hold(en *entry) {
	rc.entries.Put(en.ID, en)
	if en.Reads.Len() > 0 {
		rc.reading[en.ID] = en
	}
}

// addTo lists the virtual hosts that EnvoyFilters add to a route configuration. Of two with the same domain the first
// is kept.
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
	return patch.RouteConfig{Name: rc.Name, Port: rc.Port, Context: t.Hosts.Side()}
}
