package view

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Index is what views need to know of a whole snapshot: the label keys that sourceLabels name. Owned by one goroutine.
type Index struct {
	labels map[string]int // key -> how often it is named
}

// NewIndex reads a snapshot.
func NewIndex(s *mirror.Snapshot) *Index {
	x := &Index{labels: map[string]int{}}
	for r := range s.All(model.KindVirtualService) {
		x.count(r, 1)
	}
	return x
}

// Apply follows one edit. True: the set of label keys is another one, so the views of all nodes may be.
func (x *Index) Apply(e mirror.Edit) bool {
	had := slices.Sorted(maps.Keys(x.labels))
	x.count(e.Old, -1)
	x.count(e.New, 1)
	return !slices.Equal(had, slices.Sorted(maps.Keys(x.labels)))
}

func (x *Index) count(r model.Record, by int) {
	for _, key := range SourceLabels(r) {
		if x.labels[key] += by; x.labels[key] == 0 {
			delete(x.labels, key)
		}
	}
}

// SourceLabels are the label keys that sourceLabels of a VirtualService's http routes name; nil for other records.
func SourceLabels(r model.Record) []string {
	vs, ok := r.(*model.VirtualService)
	if !ok {
		return nil
	}
	var all []string
	for _, route := range vs.Spec.GetHttp() {
		for _, match := range route.GetMatch() {
			for key := range match.GetSourceLabels() {
				all = append(all, key)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (x *Index) facets(n Node) intern.List[string] {
	var all []string
	for key := range x.labels {
		if v, ok := n.Labels[key]; ok {
			all = append(all, key+"="+v)
		}
	}
	slices.Sort(all)
	return strs.List(all...)
}
