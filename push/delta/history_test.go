package delta

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// editor makes random sets that are sound: routes and listeners name clusters that there are.
type editor struct {
	rnd      func(int) int
	clusters map[string]string
	eds      map[string]string
	rds, lds map[string]string
	serial   int
	set      manifest.Set
	poison   bool
}

func newEditor(rnd func(int) int, poison bool) *editor {
	e := &editor{rnd: rnd, poison: poison, clusters: map[string]string{}, eds: map[string]string{}, rds: map[string]string{}, lds: map[string]string{}}
	e.edit()
	return e
}

func (e *editor) version() string {
	e.serial++
	if e.poison && e.rnd(6) == 0 {
		return fmt.Sprintf("poison%d", e.serial)
	}
	return fmt.Sprint(e.rnd(4)) // small numbers: things change back
}

func (e *editor) edit() *manifest.Set {
	for range 1 + e.rnd(3) {
		n := string(rune('a' + e.rnd(6)))
		c := "K" + n
		switch e.rnd(6) {
		case 0, 1:
			e.clusters[c] = e.version()
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
				e.lds["l-"+n] = e.version()
				e.rds["r-"+n] = e.version() + e.pick()
			}
		}
	}
	for name, v := range e.rds { // what names a cluster that is gone names another
		for _, c := range refs(thing(xds.Route, name+"@"+v)) {
			if e.clusters[c] == "" {
				e.rds[name] = e.version() + e.pick()
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

// run is one random history.
func run(t *testing.T, rnd func(int) int, steps int, sotw, poison, reconnects bool) {
	e := newEditor(rnd, poison)
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
		default:
			p.step(set)
		}
	}
	p.rest(set)
	p.agrees(set)
}

var histories = flag.Int("histories", 60, "random histories of each kind")

func TestRandomHistories(t *testing.T) {
	for _, c := range []struct {
		name                     string
		sotw, poison, reconnects bool
	}{{"plain", false, false, false}, {"reconnects", false, false, true}, {"refusals", false, true, false}, {"all", false, true, true},
		{"state of the world", true, false, false}, {"state of the world with reconnects", true, false, true}, {"state of the world with refusals", true, true, false}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(*histories) {
				r := rand.New(rand.NewPCG(seed, 1))
				run(t, r.IntN, 300, c.sotw, c.poison, c.reconnects)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// checkUrgent: endpoints that overtake configuration are of clusters that the proxy has, or is being sent, as they are to be.
func (p *proxy) checkUrgent(r Reply, urgent bool) {
	if !urgent || r.Type != xds.Endpoint || r.Due || p.first[xds.Endpoint] || p.dirty() { // the first answer is whole
		return
	}
	for _, n := range r.Set {
		has := p.has[xds.Cluster][n.Name]
		for _, d := range p.down {
			if i, is := slices.BinarySearchFunc(d.Set, n.Name, byName); is && d.Type == xds.Cluster {
				has = d.Set[i]
			}
		}
		if has != nil && !same(has, p.state.target.Types[xds.Cluster].Get(n.Name)) {
			p.fail("endpoints of %s went before the cluster", n.Name)
		}
	}
}
