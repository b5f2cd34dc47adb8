package plan

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Pending merges edits that wait for the configuration path. Of several edits of one record the first old and the last
// new version count, and an edit that was undone is dropped. Endpoints are an exception: the fast path may have planned
// a version in between, so the hosts of that version are planned again too. The zero Pending is empty.
type Pending struct {
	edits  map[model.Key]mirror.Edit
	passed map[model.Key][]mirror.Edit // of Endpoints: edits from versions in between, one for each list of hosts
}

// Len returns the number of records that wait.
func (p *Pending) Len() int {
	n := len(p.edits)
	for key := range p.passed {
		if _, is := p.edits[key]; !is {
			n++
		}
	}
	return n
}

// Add merges edits, which must be in the order of their changes.
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
		if e.Old == e.New { // equal pointers: the edit was undone
			delete(p.edits, key)
			continue
		}
		p.edits[key] = e
	}
}

// pass records a version of Endpoints in between, unless one with the same hosts is recorded.
func (p *Pending) pass(key model.Key, r model.Record) {
	if r == nil {
		return
	}
	known := func(e mirror.Edit) bool { return slices.Equal(model.HostsOf(e.Old), model.HostsOf(r)) }
	if !slices.ContainsFunc(p.passed[key], known) {
		p.passed[key] = append(p.passed[key], mirror.Edit{Old: r})
	}
}

// Take returns all edits, ordered by key, and empties p.
func (p *Pending) Take() []mirror.Edit {
	out := p.all()
	p.edits, p.passed = nil, nil
	return out
}

// all returns all edits, ordered by key.
func (p *Pending) all() []mirror.Edit {
	out := slices.Collect(maps.Values(p.edits))
	for _, edits := range p.passed {
		out = append(out, edits...)
	}
	slices.SortStableFunc(out, func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) })
	return out
}
