package manifest

import (
	"iter"
	"slices"
	"sync"

	"navarch.io/navarch/push/xds"
)

// Layers of a view, from the widest to the narrowest. A name in an upper layer replaces the same name in lower layers.
const (
	Scope     = iota // the outbound side, shared by all proxies with the same scope
	Variant          // entries of the scope that depend on more inputs of the proxy (sourceLabels)
	Workload         // the inbound side
	Overlay          // entries that depend on facts of one proxy
	NumLayers        // the number of layers; not a layer
)

// Stack holds the resources of one type of a view: one manifest for each layer. It is comparable; equal stacks have
// equal resources.
type Stack [NumLayers]*Manifest

// Hidden returns a marker in an upper layer: the view has no resource of this name, whatever the lower layers have.
func Hidden(t xds.Type, name string) *xds.Resource { return &xds.Resource{Type: t, Name: name} }

// IsHidden reports whether a resource is a marker, made by Hidden or Pending; false for nil.
func IsHidden(r *xds.Resource) bool { return r != nil && hides(r) }

// pending is the version of markers of Pending; it differs from every hash.
const pending = "pending"

// Pending returns a marker for a resource that exists and is not known yet. Neither the resource nor its removal is
// sent.
func Pending(t xds.Type, name string) *xds.Resource {
	return &xds.Resource{Type: t, Name: name, Version: pending}
}

// hides reports whether a resource is a marker.
func hides(r *xds.Resource) bool { return r.Version == "" || r.Version == pending }

// Pending reports whether the resource of a name exists and is not known yet.
func (s Stack) Pending(name string) bool {
	r := s.top(NumLayers, name)
	return r != nil && r.Version == pending
}

// Get returns the resource in the uppermost layer with the name. It returns nil if no layer has the name, or if that
// layer has a marker.
func (s Stack) Get(name string) *xds.Resource { return visibleOrNil(s.top(NumLayers, name)) }

// top returns the entry of the uppermost layer with the name, among the layers below one; nil if none of them has it.
func (s Stack) top(below int, name string) *xds.Resource {
	for i := below - 1; i >= 0; i-- {
		if r := s[i].Get(name); r != nil {
			return r
		}
	}
	return nil
}

// visibleOrNil returns a resource, and nil for a marker.
func visibleOrNil(r *xds.Resource) *xds.Resource {
	if IsHidden(r) {
		return nil
	}
	return r
}

// Len returns an upper bound of the number of distinct names: a name in several layers counts several times.
func (s Stack) Len() int {
	n := 0
	for _, m := range s {
		n += m.Len()
	}
	return n
}

// All iterates over the visible resources, each name once.
func (s Stack) All() iter.Seq[*xds.Resource] {
	return func(yield func(*xds.Resource) bool) {
		for i, m := range s {
			for r := range m.All() {
				if !hides(r) && !s.hidden(i, r.Name) && !yield(r) {
					return
				}
			}
		}
	}
}

// hidden reports whether a layer above one has the name.
func (s Stack) hidden(layer int, name string) bool {
	for above := layer + 1; above < NumLayers; above++ {
		if s[above].Len() > 0 && s[above].Get(name) != nil {
			return true
		}
	}
	return false
}

// blend is the combination of the manifests of a scope and a variant, for all proxies with both.
type blend struct {
	scope *Manifest
	sum   Sum
	order func() []*xds.Resource // the visible resources by name; computed once, at the first use
	lower func() []*xds.Resource // the scope's part of order; computed once, at the first use
}

// shared returns the blend of the two layers that proxies share.
func (s Stack) shared() blend {
	if s[Variant].Len() == 0 {
		all := func() []*xds.Resource { return visible(s[Scope].sorted(), s[Scope]) }
		return blend{s[Scope], s[Scope].sum(), all, all}
	}
	if known := s[Variant].over.Load(); known != nil && known.scope == s[Scope] {
		return *known
	}
	scope, variant := s[Scope], s[Variant]
	now := blend{scope, scope.sum(), sync.OnceValue(func() []*xds.Resource {
		return visible(overlay(scope.sorted(), variant.sorted()), scope, variant)
	}), sync.OnceValue(func() []*xds.Resource { return without(visible(scope.sorted(), scope), variant) })}
	now.sum.cover(Stack{scope}, variant)
	variant.over.Store(&now)
	return now
}

// visible returns a list without markers, given the manifests from which the list is made.
func visible(all []*xds.Resource, of ...*Manifest) []*xds.Resource {
	if slices.ContainsFunc(of, func(m *Manifest) bool { return m.Len() > 0 && m.sum().Names.Len != m.Len() }) {
		return slices.DeleteFunc(slices.Clone(all), hides)
	}
	return all
}

// Sorted returns the resources of All, sorted by name. The list may be shared, so callers must not change it.
func (s Stack) Sorted() []*xds.Resource {
	all := s.shared().order()
	for _, m := range s[Workload:] {
		if m.Len() > 0 {
			all = visible(overlay(all, m.sorted()), m)
		}
	}
	return all
}

// Layers returns the resources of All by layer, each list sorted by name. Proxies that have a layer in common receive
// the same list, whatever their other layers, so callers must not change it.
func (s Stack) Layers() (layers [NumLayers][]*xds.Resource) {
	layers[Scope], layers[Variant] = s.shared().lower(), visible(s[Variant].sorted(), s[Variant])
	for i := Workload; i < NumLayers; i++ {
		if s[i].Len() == 0 {
			continue
		}
		for below := range i {
			layers[below] = without(layers[below], s[i])
		}
		layers[i] = visible(s[i].sorted(), s[i])
	}
	return layers
}

// without returns a list, sorted by name, without the names that a manifest has. It returns the list itself if no name
// is in both.
func without(all []*xds.Resource, upper *Manifest) []*xds.Resource {
	inList := func(r *xds.Resource) bool { _, is := slices.BinarySearchFunc(all, r, byName); return is }
	if !slices.ContainsFunc(upper.sorted(), inList) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(r *xds.Resource) bool { return upper.Get(r.Name) != nil })
}

// overlay merges two lists by name; of two resources with one name the upper is in the result.
func overlay(lower, upper []*xds.Resource) []*xds.Resource {
	all := make([]*xds.Resource, 0, len(lower)+len(upper))
	for len(lower) > 0 && len(upper) > 0 {
		switch c := byName(lower[0], upper[0]); {
		case c < 0:
			all, lower = append(all, lower[0]), lower[1:]
		case c > 0:
			all, upper = append(all, upper[0]), upper[1:]
		default:
			lower = lower[1:]
		}
	}
	return append(append(all, lower...), upper...)
}

// Set holds the target configuration of one view, at one revision of the store. It is immutable, and published by
// pointer.
type Set struct {
	Types [xds.NumTypes]Stack // the resources, by type
	// Names holds the name table for agents that answer DNS; nil: no proxy of the view requests it.
	Names *Manifest
	// Bootstrap holds the patches of the bootstrap, for agents that request them; nil: there are no patches.
	Bootstrap *xds.Resource
	// Revision is the revision of the store.
	Revision int64
	// Plan is the number of the plan in which the configuration last differed from the one before, endpoints aside. It
	// rises within a process, and has no meaning in another.
	Plan int64
	// FastHosts are the hosts whose endpoints changed lately and do not wait for configuration, sorted. The host of an
	// assignment is the part of its name after the last "|".
	FastHosts []string
}
