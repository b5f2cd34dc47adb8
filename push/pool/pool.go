// Package pool keeps what builders drew: same Spec, same pointer; same bytes, same pointer.
//
// Owns: tables of what is alive (weakly: what no manifest and no stream holds is collected).  Reads: push/xds.
// Never: calls a builder twice for one Spec while the result is held.
//
// Encoded resources and Specs are held weakly (also by store/intern). The collector frees what no manifest and no
// stream holds, so no code counts references.
package pool

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"navarch.io/navarch/push/xds"
)

// ResourceSpec draws a resource. Implementations are comparable: they are the key.
type ResourceSpec interface {
	Build() (*xds.Resource, error)
}

// FragmentSpec draws a fragment. Implementations are comparable: they are the key.
type FragmentSpec interface {
	Fragment() (*xds.Fragment, error)
}

// Pool is safe for concurrent use; the zero Pool is ready.
type Pool struct {
	resources table[xds.Resource, content]
	fragments table[xds.Fragment, xds.Hash]
	builds    [xds.NumTypes]atomic.Int64
	fragBuilt atomic.Int64
}

// content names a resource's bytes.
type content struct {
	t             xds.Type
	name, version string
}

// Resource answers for a Spec: from the pool, or by building it once. Errors are not kept.
func (p *Pool) Resource(spec ResourceSpec) (*xds.Resource, error) {
	return p.resources.get(spec, func() (*xds.Resource, content, error) {
		r, err := spec.Build()
		if err != nil {
			return nil, content{}, err
		}
		if r.Type < xds.NumTypes {
			p.builds[r.Type].Add(1)
		}
		return r, content{r.Type, r.Name, r.Version}, nil
	})
}

// Fragment answers for a Spec: from the pool, or by building it once. Errors are not kept.
func (p *Pool) Fragment(spec FragmentSpec) (*xds.Fragment, error) {
	return p.FragmentOf(spec, spec.Fragment)
}

// FragmentOf is Fragment for a comparable key that has everything that build depends on. Errors are those of build.
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

// Builds is how many resources of a type were built so far.
func (p *Pool) Builds(t xds.Type) int64 { return p.builds[t].Load() }

// Fragments is how many fragments were built so far.
func (p *Pool) Fragments() int64 { return p.fragBuilt.Load() }

// Size is the number of resources and of fragments that are alive.
func (p *Pool) Size() (resources, fragments int) { return p.resources.size(), p.fragments.size() }

// Resources is the Specs that are remembered, by what was built of them and is alive. It costs a copy, while which
// nothing else is looked up.
func (p *Pool) Resources() map[*xds.Resource][]any { return p.resources.all() }

// Pieces is Resources of fragments.
func (p *Pool) Pieces() map[*xds.Fragment][]any { return p.fragments.all() }

// specsPerBody bounds how many Specs are remembered for one body. An edit that leaves the bytes as they are makes a new
// Spec each time; the oldest is forgotten then, at the worst price of building it again.
const specsPerBody = 64

// table is two weak maps: by Spec, and by content.
type table[V any, C comparable] struct {
	mu     sync.Mutex // a leaf: builders run outside of it
	bySpec map[any]weak.Pointer[V]
	byBody map[C]*body[V]
}

// body is one value that is alive, and the Specs that led to it, the oldest first.
type body[V any] struct {
	value weak.Pointer[V]
	specs []any
}

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

func (t *table[V, C]) find(spec any) *V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bySpec[spec].Value()
}

// forget removes the Specs of a body that was collected. Called with the lock held.
func (t *table[V, C]) forget(dead *body[V]) {
	if dead == nil {
		return
	}
	for _, spec := range dead.specs {
		delete(t.bySpec, spec)
	}
}

// drop is the cleanup of a collected value.
func (t *table[V, C]) drop(key C) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byBody[key]; known != nil && known.value.Value() == nil {
		t.forget(known)
		delete(t.byBody, key)
	}
}

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

func (t *table[V, C]) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byBody)
}
