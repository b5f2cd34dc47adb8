package delta

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// editor makes random consistent sets: routes and listeners name existing clusters.
type editor struct {
	rnd      func(int) int
	clusters map[string]string
	eds      map[string]string
	rds, lds map[string]string
	serial   int
	set      manifest.Set
	poison   bool
	cold     bool // some clusters warm for a long time
}

func newEditor(rnd func(int) int, poison, cold bool) *editor {
	e := &editor{rnd: rnd, poison: poison, cold: cold, clusters: map[string]string{}, eds: map[string]string{}, rds: map[string]string{}, lds: map[string]string{}}
	e.edit()
	return e
}

func (e *editor) version() string {
	e.serial++
	if e.poison && e.rnd(6) == 0 {
		return fmt.Sprintf("poison%d", e.serial)
	}
	return fmt.Sprint(e.rnd(4)) // small numbers, so that changes are undone
}

// cluster returns a version of a cluster; some versions become warm only after some time.
func (e *editor) cluster() string {
	v := e.version()
	if e.cold && e.rnd(4) == 0 && !strings.Contains(v, "poison") {
		return "cold" + v
	}
	return v
}

// listener returns a version of a listener; some versions authorise requests.
func (e *editor) listener() string {
	v := e.version()
	if e.rnd(3) == 0 {
		return "guard" + v
	}
	return v
}

func (e *editor) edit() *manifest.Set {
	for range 1 + e.rnd(3) {
		n := string(rune('a' + e.rnd(6)))
		c := "K" + n
		switch e.rnd(6) {
		case 0, 1:
			e.clusters[c] = e.cluster()
			if e.eds[c] == "" {
				e.eds[c] = e.version()
			}
		case 2:
			delete(e.clusters, c)
			delete(e.eds, c)
		case 3:
			if e.eds[c] != "" {
				e.eds[c] = e.version()
			}
		case 4:
			e.rds["r-"+n] = e.version() + e.pick()
		case 5:
			if e.rnd(2) == 0 {
				delete(e.lds, "l-"+n)
				delete(e.rds, "r-"+n)
			} else {
				e.lds["l-"+n] = e.listener() + e.pick()
				e.rds["r-"+n] = e.version() + e.pick()
			}
		}
	}
	// A resource that names a removed cluster is changed to name an existing one.
	for t, all := range map[xds.Type]map[string]string{xds.Route: e.rds, xds.Listener: e.lds} {
		for name, v := range all {
			for _, c := range refs(thing(t, name+"@"+v)) {
				if e.clusters[c] == "" {
					all[name] = e.version() + e.pick()
				}
			}
		}
	}
	e.publish()
	set := e.set
	return &set
}

func (e *editor) pick() string {
	for _, c := range slices.Sorted(maps.Keys(e.clusters)) {
		if e.rnd(2) == 0 {
			return "(" + c + ")"
		}
	}
	return "()"
}

func (e *editor) publish() {
	for t, from := range map[xds.Type]map[string]string{xds.Cluster: e.clusters, xds.Endpoint: e.eds, xds.Listener: e.lds, xds.Route: e.rds} {
		var list []*xds.Resource
		for n, v := range from {
			list = append(list, thing(t, n+"@"+v))
		}
		slices.SortFunc(list, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
		e.set.Types[t] = evolve(e.set.Types[t], list)
	}
	e.set.Revision++
}

// run runs one random history.
func run(t *testing.T, rnd func(int) int, steps int, sotw, poison, reconnects, cold bool) {
	e := newEditor(rnd, poison, cold)
	set := e.edit()
	p := newProxy(t, sotw, set, rnd)
	p.timeouts = poison || reconnects
	for range steps {
		switch n := rnd(40); {
		case n < 4:
			set = e.edit()
			p.note("edit: CDS %v EDS %v LDS %v RDS %v", e.clusters, e.eds, e.lds, e.rds)
		case n == 4 && reconnects:
			p.connect(set)
		case n == 5 && poison:
			p.pgv = !p.pgv
		case n == 6:
			p.rest(set)
			p.agrees(set)
		case n == 7 && cold:
			p.warms()
		default:
			p.step(set)
		}
	}
	p.rest(set)
	p.agrees(set)
}

var histories = flag.Int("histories", 40, "random histories of each kind")

func TestRandomHistories(t *testing.T) {
	for _, c := range []struct {
		name                           string
		sotw, poison, reconnects, cold bool
	}{{"plain", false, false, false, false}, {"reconnects", false, false, true, false}, {"refusals", false, true, false, false}, {"all", false, true, true, true},
		{"warming", false, false, false, true}, {"warming with reconnects", false, false, true, true}, {"warming with refusals", false, true, false, true},
		{"state of the world", true, false, false, false}, {"state of the world with reconnects", true, false, true, false}, {"state of the world with refusals", true, true, false, false},
		{"state of the world, warming", true, false, false, true}, {"state of the world, warming with refusals", true, true, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(*histories) {
				r := rand.New(rand.NewPCG(seed, 1))
				run(t, r.IntN, 300, c.sotw, c.poison, c.reconnects, c.cold)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// checkUrgent checks that endpoints that are sent before configuration belong to clusters that the proxy has or
// receives in the current version.
func (p *proxy) checkUrgent(r Reply, urgent bool) {
	// The first response is complete.
	if !urgent || r.Type != xds.Endpoint || r.Due || p.first[xds.Endpoint] || p.dirty() || !p.state.types[xds.Cluster].subscribed {
		return
	}
	for _, n := range r.Set {
		has := p.has[xds.Cluster][n.Name]
		for _, d := range p.down {
			if i, is := slices.BinarySearchFunc(d.Set, n.Name, byName); is && d.Type == xds.Cluster {
				has = d.Set[i]
			}
		}
		if has != nil && p.state.target.Types[xds.Cluster].Get(n.Name) != nil && !same(has, p.state.target.Types[xds.Cluster].Get(n.Name)) {
			p.fail("endpoints of %s went before the cluster", n.Name)
		}
	}
}

// warms makes one of the clusters warm that wait for a dependency outside the history.
func (p *proxy) warms() {
	for _, name := range slices.Sorted(maps.Keys(p.has[xds.Cluster])) {
		if p.has[xds.Cluster][name].WarmsUnseen && !p.warm[name] {
			p.warm[name], p.serves[name] = true, true
			break
		}
	}
	p.release()
}
