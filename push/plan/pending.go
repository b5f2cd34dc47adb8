package plan

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Pending merges edits that wait for the configuration path: of several edits of one record the first old and the last
// new count, and an edit that was undone is forgotten. Not so with Endpoints: the fast path may have planned a version in between, so
// the hosts of that version are planned again, too. The zero Pending is empty.
type Pending struct {
	edits  map[model.Key]mirror.Edit
	passed map[model.Key][]mirror.Edit // of Endpoints: from what stood in between, one for each list of hosts
}

// Len is the number of records that wait.
func (p *Pending) Len() int {
	n := len(p.edits)
	for key := range p.passed {
		if _, is := p.edits[key]; !is {
			n++
		}
	}
	return n
}

// Add merges edits in, in the order of their changes.
func (p *Pending) Add(edits []mirror.Edit) {
	if p.edits == nil {
		p.edits, p.passed = map[model.Key]mirror.Edit{}, map[model.Key][]mirror.Edit{}
	}
	for _, e := range edits {
		key := e.Key()
		if first, ok := p.edits[key]; ok {
			if key.Kind == model.KindEndpoints {
				p.pass(key, first.New)
			}
			e.Old = first.Old
		}
		for i := range p.passed[key] {
			p.passed[key][i].New = e.New
		}
		if e.Old == e.New { // pointers
			delete(p.edits, key)
			continue
		}
		p.edits[key] = e
	}
}

// pass keeps a version of Endpoints in between, unless another one with the same hosts is kept.
func (p *Pending) pass(key model.Key, r model.Record) {
	if r == nil {
		return
	}
	known := func(e mirror.Edit) bool { return slices.Equal(input.HostsOf(e.Old), input.HostsOf(r)) }
	if !slices.ContainsFunc(p.passed[key], known) {
		p.passed[key] = append(p.passed[key], mirror.Edit{Old: r})
	}
}

// Take empties it; the edits are ordered by key.
func (p *Pending) Take() []mirror.Edit {
	out := slices.Collect(maps.Values(p.edits))
	for _, edits := range p.passed {
		out = append(out, edits...)
	}
	slices.SortStableFunc(out, func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) })
	p.edits, p.passed = nil, nil
	return out
}
