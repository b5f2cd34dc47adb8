package plan

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Pending merges edits that wait for the configuration lane: of several edits of one record the first old and the last
// new count, and what was undone is forgotten. The zero Pending is empty.
type Pending struct{ edits map[model.Key]mirror.Edit }

// Len is the number of records that wait.
func (p *Pending) Len() int { return len(p.edits) }

// Add merges edits in, in the order of their changes.
func (p *Pending) Add(edits []mirror.Edit) {
	if p.edits == nil {
		p.edits = map[model.Key]mirror.Edit{}
	}
	for _, e := range edits {
		key := e.Key()
		if first, ok := p.edits[key]; ok {
			e.Old = first.Old
		}
		if e.Old == e.New { // pointers
			delete(p.edits, key)
			continue
		}
		p.edits[key] = e
	}
}

// Take empties it; the edits are ordered by key.
func (p *Pending) Take() []mirror.Edit {
	out := slices.SortedFunc(maps.Values(p.edits), func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) })
	p.edits = nil
	return out
}
