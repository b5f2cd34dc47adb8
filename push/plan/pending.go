package plan

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Pending merges edits that wait to be planned. Several edits of one record become one edit, from the first old version
// to the last new version. If these two versions are the same, the edit is dropped. For Endpoints, Pending also retains
// the versions in between, because the fast path may have planned their hosts. The zero Pending is empty. It is for one
// goroutine.
type Pending struct {
	edits  map[model.Key]mirror.Edit
	passed map[model.Key][]mirror.Edit // edits of Endpoints from versions in between, one for each list of hosts
}

// Len returns the number of records whose edits wait.
func (p *Pending) Len() int {
	n := len(p.edits)
	for key := range p.passed {
		if _, is := p.edits[key]; !is {
			n++
		}
	}
	return n
}

// Add merges further edits. They must be in the order in which they happened, and newer than all earlier edits. Add
// does not keep the slice.
func (p *Pending) Add(edits []mirror.Edit) {
	if p.edits == nil {
		p.edits, p.passed = map[model.Key]mirror.Edit{}, map[model.Key][]mirror.Edit{}
	}
	for _, e := range edits {
		key := e.Key()
		if first, ok := p.edits[key]; ok {
			if key.Kind == model.KindEndpoints {
				p.pass(key, first)
			}
			e = first.Then(e)
		}
		for i := range p.passed[key] {
			p.passed[key][i] = p.passed[key][i].Then(e)
		}
		if e.Old == e.New { // equal pointers: the edit was undone
			delete(p.edits, key)
			continue
		}
		p.edits[key] = e
	}
}

// pass records the New of an edit, a version of Endpoints between the first and the last one. It records only one
// version with the same hosts.
func (p *Pending) pass(key model.Key, first mirror.Edit) {
	r := first.New
	if r == nil {
		return
	}
	known := func(e mirror.Edit) bool { return slices.Equal(model.HostsOf(e.Old), model.HostsOf(r)) }
	if !slices.ContainsFunc(p.passed[key], known) {
		p.passed[key] = append(p.passed[key], mirror.Edit{Old: r, In: first.In})
	}
}

// Take returns all edits, ordered by key, and empties p. For Endpoints several edits may have the same key. They lead
// from the first version, and from versions in between, to the last version. The caller owns the result.
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
