package manifest

import (
	"iter"
	"slices"
	"sync"

	"navarch.io/navarch/push/xds"
)

// The layers of a view (the configuration that equal proxies share), from the lowest to the uppermost. A resource in an
// upper layer replaces the resource of the same name in lower layers.
const (
	Scope     = iota // the outbound side, shared by all proxies with the same view.Scope
	Variant          // outbound resources that differ for proxies with certain properties (view.Inputs)
	Workload         // the inbound side, shared by all proxies with the same workload
	Overlay          // resources that depend on addresses or the identity of a proxy
	NumLayers        // the number of layers; not a layer
)

// Stack contains a view's resources of one type, in one manifest for each layer. A manifest may be nil. A resource is
// visible if it is not a marker (made by Hidden or Pending) and no upper layer has its name. Stacks are comparable, and
// equal stacks have equal resources.
type Stack [NumLayers]*Manifest

// Hidden returns a marker for an upper layer. The marker hides the resource with this type and name in lower layers.
func Hidden(t xds.Type, name string) *xds.Resource { return &xds.Resource{Type: t, Name: name} }

// IsHidden reports whether a resource is a marker, made by Hidden or Pending. It is false for nil.
func IsHidden(r *xds.Resource) bool { return r != nil && hides(r) }

// pending is the version of markers of Pending; it differs from every hash.
const pending = "pending"

// Pending returns a marker for a resource that exists, but whose content is not known yet. Streams send neither the
// resource nor its removal.
func Pending(t xds.Type, name string) *xds.Resource {
	return &xds.Resource{Type: t, Name: name, Version: pending}
}

// hides reports whether a resource is a marker.
func hides(r *xds.Resource) bool { return r.Version == "" || r.Version == pending }

// Pending reports whether the uppermost layer that has the name contains a marker made by the function Pending.
func (s Stack) Pending(name string) bool {
	r := s.top(NumLayers, name)
	return r != nil && r.Version == pending
}

// Get returns the resource in the uppermost layer that has the name. It returns nil if no layer has the name, or if
// this uppermost layer has a marker for it.
func (s Stack) Get(name string) *xds.Resource { return visibleOrNil(s.top(NumLayers, name)) }

// top returns the resource or marker for a name in the uppermost layer that has the name. It searches only the layers
// whose number is less than limit. It returns nil if these layers lack the name.
func (s Stack) top(limit int, name string) *xds.Resource {
	for i := limit - 1; i >= 0; i-- {
		if r := s[i].Get(name); r != nil {
			return r
		}
	}
	return nil
}

// visibleOrNil returns r, or nil if r is a marker.
func visibleOrNil(r *xds.Resource) *xds.Resource {
	if IsHidden(r) {
		return nil
	}
	return r
}

// Len returns the sum of the lengths of the layers, including markers. It is an upper bound of the number of visible
// resources.
func (s Stack) Len() int {
	n := 0
	for _, m := range s {
		n += m.Len()
	}
	return n
}

// All iterates over the visible resources, in an arbitrary order. Each name occurs once.
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

// hidden reports whether a layer above the given layer has a name.
func (s Stack) hidden(layer int, name string) bool {
	for above := layer + 1; above < NumLayers; above++ {
		if s[above].Len() > 0 && s[above].Get(name) != nil {
			return true
		}
	}
	return false
}

// blend combines a Scope manifest with a Variant manifest. All stacks that have both manifests share the blend.
type blend struct {
	scope *Manifest
	sum   Sum
	order func() []*xds.Resource // the visible resources, sorted by name; computed at the first use
	lower func() []*xds.Resource // resources of order that come from the layer Scope; computed at the first use
}

// shared returns the blend of the layers Scope and Variant. Each Variant manifest caches its last blend.
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

// visible returns a list of resources without its markers. Callers also pass the manifests from which the list was
// made. If these manifests have no markers, the result is the list itself.
func visible(all []*xds.Resource, of ...*Manifest) []*xds.Resource {
	if slices.ContainsFunc(of, func(m *Manifest) bool { return m.Len() > 0 && m.sum().Names.Len != m.Len() }) {
		return slices.DeleteFunc(slices.Clone(all), hides)
	}
	return all
}

// Sorted returns the visible resources, sorted by name. The list may be shared, so callers must not change it.
func (s Stack) Sorted() []*xds.Resource {
	all := s.shared().order()
	for _, m := range s[Workload:] {
		if m.Len() > 0 {
			all = visible(overlay(all, m.sorted()), m)
		}
	}
	return all
}

// Layers returns the visible resources of each layer, sorted by name. Several stacks may share a list, so callers must
// not change it.
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

// without returns a sorted list, except the resources whose names the manifest upper has. Without such resources, it
// returns the list itself.
func without(all []*xds.Resource, upper *Manifest) []*xds.Resource {
	inList := func(r *xds.Resource) bool { _, is := slices.BinarySearchFunc(all, r, byName); return is }
	if !slices.ContainsFunc(upper.sorted(), inList) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(r *xds.Resource) bool { return upper.Get(r.Name) != nil })
}

// overlay merges two lists that are sorted by name. If both lists have a name, the result has only the resource in
// upper.
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

// Set contains the target configuration of one view, at one revision of the store. It is immutable.
type Set struct {
	Types [xds.NumTypes]Stack // the resources, by type
	// Names contains the name table for agents that answer DNS. It is nil if no proxy of the view requests it.
	Names *Manifest
	// Bootstrap contains the patches of the bootstrap, for agents that request them. It is nil without patches.
	Bootstrap *xds.Resource
	// Revision is the store's revision with which the set was planned.
	Revision int64
	// Plan is the number of the plan that last changed the configuration. Changes of endpoints, Secrets and registry
	// credentials do not count. The number increases within a process. Numbers of different processes cannot be
	// compared.
	Plan int64
	// FastHosts lists the hosts of the endpoints that were planned most recently by the fast path (a plan of endpoints
	// alone). It is sorted. A stream may send the assignments of these hosts before other pending configuration. The
	// host of an assignment is the part of its name after the last "|".
	FastHosts []string
}
