package manifest

import (
	"iter"
	"slices"
	"sync"

	"navarch.io/navarch/push/xds"
)

// Layers of a view, from the widest to the narrowest; an upper layer hides names of the ones below it.
const (
	Scope     = iota // shared by all that see the same outbound side
	Variant          // entries of the scope that read more of the proxy (sourceLabels)
	Workload         // the inbound side
	Overlay          // facts of one proxy
	NumLayers        // how many there are; not a layer
)

// Stack is what a view holds of one type: one manifest for each layer. Comparable: equal stacks hold the same.
type Stack [NumLayers]*Manifest

// Hidden stands in an upper layer for "no resource of this name", whatever the layers below it hold.
func Hidden(t xds.Type, name string) *xds.Resource { return &xds.Resource{Type: t, Name: name} }

// IsHidden says whether a resource is such a marker.
func IsHidden(r *xds.Resource) bool { return r != nil && hides(r) }

// pending is the version of what Pending makes; no hash is like it.
const pending = "pending"

// Pending stands for a resource that exists and is not known yet: there is none to be sent, and its absence is not to be
// told either.
func Pending(t xds.Type, name string) *xds.Resource {
	return &xds.Resource{Type: t, Name: name, Version: pending}
}

func hides(r *xds.Resource) bool { return r.Version == "" || r.Version == pending }

// Pending says whether a resource exists and is not known yet.
func (s Stack) Pending(name string) bool {
	r := s.top(NumLayers, name)
	return r != nil && r.Version == pending
}

// Get finds a resource in the uppermost layer that has the name; nil if none has, or that layer hides it, or it is pending.
func (s Stack) Get(name string) *xds.Resource { return shown(s.top(NumLayers, name)) }

// top is what the uppermost layer that has the name has of it, of the layers below one; nil: none of them has it.
func (s Stack) top(below int, name string) *xds.Resource {
	for i := below - 1; i >= 0; i-- {
		if r := s[i].Get(name); r != nil {
			return r
		}
	}
	return nil
}

// shown is a resource; nil for none, and for what stands for none.
func shown(r *xds.Resource) *xds.Resource {
	if IsHidden(r) {
		return nil
	}
	return r
}

// Len is the number of distinct names at most: names hidden by an upper layer count in both.
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

func (s Stack) hidden(layer int, name string) bool {
	for above := layer + 1; above < NumLayers; above++ {
		if s[above].Len() > 0 && s[above].Get(name) != nil {
			return true
		}
	}
	return false
}

// blend is what the manifests of a scope and of a variant come to together, for all proxies that have both.
type blend struct {
	scope *Manifest
	sum   Sum
	order func() []*xds.Resource // visible ones, by name; made once, when it is first asked for
	lower func() []*xds.Resource // the scope's part of these: all that the variant does not hide; made once, too
}

// shared is the blend of the two layers that proxies share.
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

// visible is a list without what hides, if a manifest has any.
func visible(all []*xds.Resource, of ...*Manifest) []*xds.Resource {
	if slices.ContainsFunc(of, func(m *Manifest) bool { return m.Len() > 0 && m.sum().Names.Len != m.Len() }) {
		return slices.DeleteFunc(slices.Clone(all), hides)
	}
	return all
}

// Sorted is All in the order of names. It may be shared between callers: not to be changed.
func (s Stack) Sorted() []*xds.Resource {
	all := s.shared().order()
	for _, m := range s[Workload:] {
		if m.Len() > 0 {
			all = visible(overlay(all, m.sorted()), m)
		}
	}
	return all
}

// Layers is All, by layer, each in the order of names. What many proxies have of a layer is the same list for all of them, whatever else each of them has:
// not to be changed.
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

// without is a list, which is by name, without the names that a manifest has: the list itself, where it has none of them.
func without(all []*xds.Resource, upper *Manifest) []*xds.Resource {
	if !slices.ContainsFunc(upper.sorted(), func(r *xds.Resource) bool { _, is := slices.BinarySearchFunc(all, r, byName); return is }) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(r *xds.Resource) bool { return upper.Get(r.Name) != nil })
}

// overlay merges two lists by name; of two with one name the upper counts.
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

// Set is everything one view should have, at one revision of the store. Immutable; publish by pointer.
type Set struct {
	Types [xds.NumTypes]Stack
	// Names holds the name table of agents that answer DNS; nil: no proxy of the view asks for it.
	Names *Manifest
	// Bootstrap is what patches change of the bootstrap of a proxy whose agent asks for it; nil: nothing.
	Bootstrap *xds.Resource
	Revision  int64
	// Plan is which plan of configuration made it differ from the one before, endpoints aside: a number that rises in one
	// process and means nothing in another.
	Plan int64
	// FastHosts is the hosts whose endpoints changed lately, and do not wait for configuration; sorted. An assignment is of the
	// host that its name ends with, after a "|".
	FastHosts []string
}
