package plan

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// PatchCount says of one patch of an EnvoyFilter how many resources it changes: clusters, listeners, heads of route configurations, virtual hosts and
// configurations of filters, each once, however many proxies have it.
type PatchCount struct {
	Patch   model.Patch
	Changed int // clusters and listeners that it removes as a whole, by their names, among them
}

// patchable is a Spec that may be drawn with patches.
type patchable interface{ Effective() []model.Patch }

// stock is what is planned, at one moment: nothing of it changes.
type stock struct {
	snapshot  *mirror.Snapshot // nil: there is nothing
	pool      *pool.Pool
	manifests map[*manifest.Manifest]struct{}
	removed   map[model.Patch]map[any]struct{} // by their names, what patches remove as a whole
}

// stock takes what is planned as it is: that is work for each scope, variant and workload, not for each resource, nor for each proxy; for each host where a patch
// removes clusters or listeners as a whole.
func (p *Planner) stock() stock {
	s := stock{snapshot: p.input.Snapshot, pool: p.input.Pool, manifests: map[*manifest.Manifest]struct{}{}, removed: map[model.Patch]map[any]struct{}{}}
	add := func(l *layer.Layer) {
		for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Route, xds.Extension} {
			s.manifests[l.Manifest(t)] = struct{}{}
		}
	}
	remove := func(r input.Removal) {
		if s.removed[r.By] == nil {
			s.removed[r.By] = map[any]struct{}{}
		}
		s.removed[r.By][r.Ref] = struct{}{}
	}
	for _, scope := range p.scopes {
		scope.hosts.Removals(remove)
		scope.front.Removals(remove)
		add(scope.layer)
		for _, v := range scope.variants {
			add(v.Layer)
		}
	}
	for _, wl := range p.workloads {
		add(&wl.Layer)
		for _, r := range wl.Removals() {
			remove(r)
		}
	}
	return s
}

// each calls f with what was built of each Spec, a resource or a fragment, and the Specs that are remembered of it.
func (s stock) each(f func(built any, specs []any)) {
	resources := s.pool.Resources()
	chunks := map[*xds.Fragment]struct{}{}
	for m := range s.manifests {
		for r := range m.All() {
			f(r, resources[r])
			for chunk := range r.Pieces() {
				chunks[chunk] = struct{}{}
			}
		}
	}
	held, seed := map[uint64]struct{}{}, maphash.MakeSeed()
	for chunk := range chunks {
		for b := chunk.Bytes; len(b) > 0; {
			_, _, n := protowire.ConsumeField(b)
			if n < 0 {
				break
			}
			held[maphash.Bytes(seed, b[:n])] = struct{}{}
			b = b[n:]
		}
	}
	for piece, specs := range s.pool.Pieces() { // those that nobody holds any more, and are not collected yet, among them
		if _, is := held[maphash.Bytes(seed, piece.Bytes)]; is || len(piece.Bytes) == 0 { // a patch has removed the virtual host
			f(piece, specs)
		}
	}
}

// patchCounts remembers which patches change what, so that only what is new is drawn again. Safe for concurrent use.
type patchCounts struct {
	mu        sync.Mutex
	effective map[any][]model.Patch // by Spec
}

// answer counts for every patch of every EnvoyFilter, by their keys. What is not planned any more is forgotten.
func (c *patchCounts) answer(s stock) []PatchCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.snapshot == nil {
		return nil
	}
	changed, now := s.removed, map[any][]model.Patch{}
	s.each(func(built any, specs []any) {
		for _, spec := range specs {
			of, is := spec.(patchable)
			if !is {
				continue
			}
			found, known := c.effective[spec]
			if !known {
				found = of.Effective()
			}
			now[spec] = found
			for _, p := range found {
				if changed[p] == nil {
					changed[p] = map[any]struct{}{}
				}
				changed[p][built] = struct{}{}
			}
		}
	})
	c.effective = now
	var out []PatchCount
	for r := range s.snapshot.All(model.KindEnvoyFilter) {
		f := r.(*model.EnvoyFilter)
		for i := range f.Spec.GetConfigPatches() {
			p := model.Patch{Filter: f, Index: i}
			out = append(out, PatchCount{Patch: p, Changed: len(changed[p])})
		}
	}
	slices.SortStableFunc(out, func(a, b PatchCount) int {
		return cmp.Or(a.Patch.Filter.Key.Compare(b.Patch.Filter.Key), cmp.Compare(a.Patch.Index, b.Patch.Index))
	})
	return out
}

// Patches counts what each patch of an EnvoyFilter changes. The first time it costs as much as building, twice, everything that patches may change; later,
// what has changed since.
func (p *Planner) Patches() []PatchCount { return p.counts.answer(p.stock()) }

// Patches is Planner.Patches; what is drawn is drawn in the caller's goroutine, so the loop goes on. It is kept as Problems are.
func (l *Loop) Patches() []PatchCount {
	return l.counted.get(l.edition.Load(), func() ([]PatchCount, int64) {
		var s stock
		var edition int64
		l.look(func() {
			edition = l.edition.Load()
			if l.planner != nil {
				s = l.planner.stock()
			}
		})
		return l.counts.answer(s), edition
	})
}
