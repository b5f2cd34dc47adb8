package plan

import (
	"cmp"
	"context"
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

// PatchCount contains the number of resources that one patch of an EnvoyFilter changes. It counts clusters, listeners,
// route configurations without their virtual hosts, virtual hosts, and extension configurations. A resource that
// several proxies share counts once.
type PatchCount struct {
	Patch   model.Patch
	Changed int // includes clusters and listeners that the patch removes as a whole
}

// patchable is a Spec (all inputs of a resource's build) that can list the patches that change its resource.
type patchable interface{ Effective() []model.Patch }

// patchedResources is an immutable snapshot of the planned resources that patches may change.
type patchedResources struct {
	snapshot  *mirror.Snapshot // nil without a plan
	pool      *pool.Pool
	manifests map[*manifest.Manifest]struct{}
	removed   map[model.Patch]map[any]struct{} // resources that patches remove as a whole, by xds.Ref
}

// patchedResources returns a snapshot of the planned resources. Its cost grows with the number of scopes, variants and
// workloads. If a patch removes clusters or listeners, the cost also grows with the number of hosts.
func (p *Planner) patchedResources() patchedResources {
	s := patchedResources{snapshot: p.input.Snapshot, pool: p.input.Pool,
		manifests: map[*manifest.Manifest]struct{}{}, removed: map[model.Patch]map[any]struct{}{}}
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

// each calls f with each built resource or fragment (an encoded part of a resource), until f returns false. It also
// passes the Specs that the pool has for the resource or fragment.
func (s patchedResources) each(f func(built any, specs []any) bool) {
	resources := s.pool.Resources()
	chunks := map[*xds.Fragment]struct{}{}
	for m := range s.manifests {
		for r := range m.All() {
			if !f(r, resources[r]) {
				return
			}
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
	for piece, specs := range s.pool.Pieces() { // the pool may also contain unused pieces
		_, is := held[maphash.Bytes(seed, piece.Bytes)]
		if used := is || len(piece.Bytes) == 0; used && !f(piece, specs) { // a piece is empty if a patch has removed its virtual host
			return
		}
	}
}

// patchCounts caches the effective patches of each Spec, so that only new Specs are built again. It is safe for
// concurrent use.
type patchCounts struct {
	mu        sync.Mutex
	effective map[any][]model.Patch // by Spec
}

// answer returns a count for every patch of every EnvoyFilter, sorted by key and index. It drops the cached patches of
// Specs that are not planned any more. The error is that of ctx, which is checked before each Spec.
func (c *patchCounts) answer(ctx context.Context, s patchedResources) ([]PatchCount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.snapshot == nil {
		return nil, ctx.Err()
	}
	changed, now := s.removed, map[any][]model.Patch{}
	s.each(func(built any, specs []any) bool {
		for _, spec := range specs {
			if ctx.Err() != nil {
				return false
			}
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
		return true
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
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
	return out, nil
}

// Patches returns a PatchCount for each patch of each EnvoyFilter, ordered by the key of the EnvoyFilter and the index
// of the patch. The first call builds each resource that patches may change. Later calls build only resources with new
// Specs (inputs of the build).
func (p *Planner) Patches() []PatchCount {
	all, _ := p.PatchesUntil(context.Background()) // this context does not end
	return all
}

// PatchesUntil returns the result of Patches. If ctx ends first, the result is nil, and the error is that of ctx.
func (p *Planner) PatchesUntil(ctx context.Context) ([]PatchCount, error) {
	return p.counts.answer(ctx, p.patchedResources())
}

// Patches returns the result of Planner.Patches, or nil without a plan. Resources are built in the caller's goroutine,
// so the loop continues meanwhile. The result is cached until the plan changes, and the caller must not change it. If
// the plan has changed, a caller may wait for three times the duration of the last computation. After the loop's end
// the result may be nil.
func (l *Loop) Patches() []PatchCount {
	return l.counted.get(l.edition.Load(), func() ([]PatchCount, int64) {
		var s patchedResources
		var edition int64
		l.inspect(func() {
			edition = l.edition.Load()
			if l.planner != nil {
				s = l.planner.patchedResources()
			}
		})
		all, _ := l.counts.answer(context.Background(), s) // this context does not end
		return all, edition
	})
}
