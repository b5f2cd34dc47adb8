package view

import (
	"encoding/binary"
	"maps"
	"slices"
	"weak"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Index is what views need to know of a whole snapshot: the label keys that sourceLabels name. Owned by one goroutine.
type Index struct {
	labels map[string]int // key -> how often it is named

	// What selectors of the snapshot that was asked about last chose: proxies of one workload have the same labels.
	snapshot weak.Pointer[mirror.Snapshot] // weak: endpoints may change for days while nobody joins
	chosen   map[string]choice             // by namespace, cluster and labels
	key      []byte                        // reused
}

// choice is what a snapshot has for all proxies of a namespace and cluster that have the same labels.
type choice struct {
	sidecar         model.Key
	ownAddress      bool // see ownAddress
	services        intern.List[model.Key]
	headless        bool // see servicesOf
	closed          bool
	peers, policies intern.List[model.Key]
	facets          intern.List[string]
	out, in         intern.List[Patch]
	picky           bool // out and in are not the same for all of them
}

// maxChosen bounds how many choices are remembered: labels may be as many as proxies.
const maxChosen = 4096

// choice chooses, or remembers.
func (x *Index) choice(s *mirror.Snapshot, root string, n Node) choice {
	if at := weak.Make(s); x.snapshot != at {
		x.snapshot, x.chosen = at, map[string]choice{}
	}
	x.key = append(append(x.key[:0], n.Namespace...), 0)
	x.key = appendLabels(append(append(x.key, n.Cluster...), 0), n.Labels)
	c, is := x.chosen[string(x.key)]
	if is {
		return c
	}
	services, headless := servicesOf(s, n)
	c = choice{sidecar: sidecarOf(s, root, n), services: keys.List(services...), headless: headless, closed: closed(s, root, n),
		peers: keys.List(peersOf(s, root, n)...), policies: keys.List(policiesOf(s, root, n)...), facets: x.facets(n)}
	c.ownAddress = ownAddress(s, c.sidecar)
	c.out, c.in, c.picky = filtersOf(s, root, n)
	if len(x.chosen) >= maxChosen {
		clear(x.chosen)
	}
	x.chosen[string(x.key)] = c
	return c
}

// appendLabels makes equal bytes of equal labels, and of no others.
func appendLabels(b []byte, labels map[string]string) []byte {
	var few [16]string
	sorted := few[:0]
	for key := range labels {
		sorted = append(sorted, key)
	}
	slices.Sort(sorted)
	for _, key := range sorted {
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(len(labels[key])))
		b = append(b, labels[key]...)
	}
	return b
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
	x.snapshot, x.chosen = weak.Pointer[mirror.Snapshot]{}, nil
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
