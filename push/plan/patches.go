package plan

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/manifest"
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
	Changed int
	// Uncounted: it removes clusters or listeners as a whole. These are not planned, so there is nothing to count.
	Uncounted bool
}

// patchable is a Spec that may be drawn with patches.
type patchable interface{ Effective() []model.Patch }

// stock is what is planned, at one moment: nothing of it changes.
type stock struct {
	snapshot  *mirror.Snapshot // nil: there is nothing
	pool      *pool.Pool
	manifests map[*manifest.Manifest]struct{}
}

// stock takes what is planned as it is: that is work for each scope, variant and workload, not for each resource, nor for each proxy.
func (p *Planner) stock() stock {
	s := stock{snapshot: p.input.Snapshot, pool: p.input.Pool, manifests: map[*manifest.Manifest]struct{}{}}
	add := func(l *layer.Layer) {
		for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Route, xds.Extension} {
			s.manifests[l.Manifest(t)] = struct{}{}
		}
	}
	for _, scope := range p.scopes {
		add(scope.layer)
		for _, v := range scope.variants {
			add(v.Layer)
		}
	}
	for _, wl := range p.workloads {
		add(&wl.Layer)
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
	changed, now := map[model.Patch]map[any]struct{}{}, map[any][]model.Patch{}
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
			out = append(out, PatchCount{Patch: p, Changed: len(changed[p]), Uncounted: removesWhole(p)})
		}
	}
	slices.SortStableFunc(out, func(a, b PatchCount) int {
		return cmp.Or(a.Patch.Filter.Key.Compare(b.Patch.Filter.Key), cmp.Compare(a.Patch.Index, b.Patch.Index))
	})
	return out
}

// removesWhole says whether a patch removes what is then not planned at all.
func removesWhole(p model.Patch) bool {
	c := p.Config()
	return c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_REMOVE &&
		(c.GetApplyTo() == networkingv1.EnvoyFilter_CLUSTER || c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER)
}

// Patches counts what each patch of an EnvoyFilter changes. The first time it costs as much as building, twice, everything that patches may change; later,
// what has changed since.
func (p *Planner) Patches() []PatchCount { return p.counts.answer(p.stock()) }

// Patches is Planner.Patches; what is drawn is drawn in the caller's goroutine, so the loop goes on.
func (l *Loop) Patches() []PatchCount {
	var s stock
	l.look(func() {
		if l.planner != nil {
			s = l.planner.stock()
		}
	})
	return l.counts.answer(s)
}
