// Package pool caches the resources and fragments (encoded parts of resources) that builders make from Specs. A Spec is
// the complete input of one build. Equal Specs have the same result, and results with equal bytes are the same pointer.
//
// Owns: tables with weak references to the results. Reads: Specs, and the results of their builds. Never: calls a
// builder again for a Spec whose result is cached.
//
// A result is cached as long as anything outside of the Pool refers to it. The tables refer to results weakly, so the
// garbage collector frees a result without other references. Only the newest 64 Specs of a result are cached.
package pool

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"navarch.io/navarch/push/xds"
)

// ResourceSpec is the input of a resource. Implementations must be comparable and contain every input, because a Spec
// is the key of the cache.
type ResourceSpec interface {
	// Build returns the resource, which must not change afterwards. Several goroutines may call it at once.
	Build() (*xds.Resource, error)
}

// PiecewiseSpec is a ResourceSpec of a resource that may be large.
type PiecewiseSpec interface {
	ResourceSpec
	// BuildInPieces must return the same result as Build, and call the function pause between small pieces of the work.
	BuildInPieces(pause func()) (*xds.Resource, error)
}

// SharedSpec is a PiecewiseSpec of a resource that may end in a fragment, which resources of other names have too.
type SharedSpec interface {
	PiecewiseSpec
	// Shared returns the key of the fragment, which contains every input of FragmentInPieces. If ok is false, the
	// resource has no such fragment.
	Shared() (key any, ok bool)
	FragmentInPieces(pause func()) (*xds.Fragment, error)
	// Around must return the same result as Build.
	Around(f *xds.Fragment) (*xds.Resource, error)
}

// FragmentSpec is the input of a fragment. Implementations must be comparable and contain every input, because a Spec
// is the key of the cache.
type FragmentSpec interface {
	// Fragment returns the fragment, which must not change afterwards. Several goroutines may call it at once.
	Fragment() (*xds.Fragment, error)
}

// Pool is a cache of resources and fragments. The zero Pool is empty and ready for use. A Pool is safe for concurrent
// use, and must not be copied.
type Pool struct {
	resources table[xds.Resource, content]
	fragments table[xds.Fragment, xds.Hash]
	builds    [xds.NumTypes]atomic.Int64
	fragBuilt atomic.Int64
}

// content identifies a resource's bytes.
type content struct {
	t             xds.Type
	name, version string
}

// Resource returns the resource of a Spec from the cache, or calls spec.Build. Concurrent calls for one Spec may build
// several times, and all return the same resource. The resource is shared and read-only. The error is that of Build,
// and is not cached.
func (p *Pool) Resource(spec ResourceSpec) (*xds.Resource, error) {
	return p.resource(spec, spec.Build)
}

// ResourceInPieces does the same as Resource, but builds with BuildInPieces, which calls the function pause. This
// function may use the Pool. It is not called for a cached resource. The fragment of a SharedSpec is found in the pool
// too. The error is that of BuildInPieces.
func (p *Pool) ResourceInPieces(spec PiecewiseSpec, pause func()) (*xds.Resource, error) {
	return p.resource(spec, func() (*xds.Resource, error) {
		shared, is := spec.(SharedSpec)
		if !is {
			return spec.BuildInPieces(pause)
		}
		key, is := shared.Shared()
		if !is {
			return spec.BuildInPieces(pause)
		}
		f, err := p.FragmentOf(key, func() (*xds.Fragment, error) { return shared.FragmentInPieces(pause) })
		if err != nil {
			return nil, err
		}
		return shared.Around(f)
	})
}

func (p *Pool) resource(spec ResourceSpec, build func() (*xds.Resource, error)) (*xds.Resource, error) {
	return p.resources.get(spec, func() (*xds.Resource, content, error) {
		r, err := build()
		if err != nil {
			return nil, content{}, err
		}
		if r.Type < xds.NumTypes {
			p.builds[r.Type].Add(1)
		}
		return r, content{r.Type, r.Name, r.Version}, nil
	})
}

// Fragment returns the fragment of a Spec from the cache, or calls spec.Fragment. The fragment is shared and read-only.
// The error is that of spec.Fragment, and is not cached.
func (p *Pool) Fragment(spec FragmentSpec) (*xds.Fragment, error) {
	return p.FragmentOf(spec, spec.Fragment)
}

// FragmentOf returns the fragment of a key from the cache, or calls the function build. The argument key must be
// comparable, and contain every input of build. The error is that of build, and is not cached.
func (p *Pool) FragmentOf(key any, build func() (*xds.Fragment, error)) (*xds.Fragment, error) {
	return p.fragments.get(key, func() (*xds.Fragment, xds.Hash, error) {
		f, err := build()
		if err != nil {
			return nil, xds.Hash{}, err
		}
		p.fragBuilt.Add(1)
		return f, f.Hash, nil
	})
}

// Builds returns the number of resources of a type that were built so far, without failed builds. It panics if t is not
// below xds.NumTypes.
func (p *Pool) Builds(t xds.Type) int64 { return p.builds[t].Load() }

// Fragments returns the number of fragments that were built so far, without failed builds.
func (p *Pool) Fragments() int64 { return p.fragBuilt.Load() }

// Size returns the numbers of cached resources and of cached fragments. It may count results that were freed just now.
func (p *Pool) Size() (resources, fragments int) { return p.resources.size(), p.fragments.size() }

// Resources maps each cached resource to its cached Specs, the oldest Spec first. The caller owns the result. Other
// calls for resources wait until Resources returns.
func (p *Pool) Resources() map[*xds.Resource][]any { return p.resources.all() }

// Pieces maps each cached fragment to its cached Specs or keys (FragmentOf), the oldest first. The caller owns the
// result. Other calls for fragments wait until Pieces returns.
func (p *Pool) Pieces() map[*xds.Fragment][]any { return p.fragments.all() }

// specsPerBody is the maximum number of cached Specs of one body (a result with certain bytes). Each edit that does not
// change the bytes adds a Spec. Beyond the maximum, the oldest Spec is evicted. An evicted Spec is built again when it
// is used again.
const specsPerBody = 64

// table has two weak maps: by Spec, and by content.
type table[V any, C comparable] struct {
	mu     sync.Mutex // guards the maps; it is not held while a builder runs
	bySpec map[any]weak.Pointer[V]
	byBody map[C]*body[V]
}

// body is one cached value, with the Specs from which it was built, the oldest first.
type body[V any] struct {
	value weak.Pointer[V]
	specs []any
}

// get returns the value of a Spec, and calls build if the value is not cached.
func (t *table[V, C]) get(spec any, build func() (*V, C, error)) (*V, error) {
	if v := t.find(spec); v != nil {
		return v, nil
	}
	fresh, key, err := build()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bySpec == nil {
		t.bySpec, t.byBody = map[any]weak.Pointer[V]{}, map[C]*body[V]{}
	}
	if v := t.bySpec[spec].Value(); v != nil {
		return v, nil // another goroutine was first
	}
	known := t.byBody[key]
	var v *V
	if known != nil {
		v = known.value.Value()
	}
	if v == nil {
		t.forget(known)
		v, known = fresh, &body[V]{value: weak.Make(fresh)}
		t.byBody[key] = known
		runtime.AddCleanup(fresh, t.drop, key)
	}
	if len(known.specs) == specsPerBody {
		delete(t.bySpec, known.specs[0])
		known.specs = append(known.specs[:0], known.specs[1:]...)
	}
	known.specs = append(known.specs, spec)
	t.bySpec[spec] = known.value
	return v, nil
}

// find returns the cached value of a Spec, or nil.
func (t *table[V, C]) find(spec any) *V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bySpec[spec].Value()
}

// forget removes the Specs of a body whose value was freed. It ignores nil. The caller holds the lock.
func (t *table[V, C]) forget(dead *body[V]) {
	if dead == nil {
		return
	}
	for _, spec := range dead.specs {
		delete(t.bySpec, spec)
	}
}

// drop removes the body of a value that was freed. The runtime calls drop after garbage collection.
func (t *table[V, C]) drop(key C) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byBody[key]; known != nil && known.value.Value() == nil {
		t.forget(known)
		delete(t.byBody, key)
	}
}

// all returns the cached values with copies of their lists of Specs.
func (t *table[V, C]) all() map[*V][]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[*V][]any, len(t.byBody))
	for _, known := range t.byBody {
		if v := known.value.Value(); v != nil {
			out[v] = slices.Clone(known.specs)
		}
	}
	return out
}

// size returns the number of values.
func (t *table[V, C]) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byBody)
}
