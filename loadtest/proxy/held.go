package proxy

import (
	"fmt"
	"iter"
	"math/bits"
	"sync"
	"unique"

	"navarch.io/navarch/push/xds"
)

// page contains the versions of 64 neighbouring names; 0: the name is not held.
type page [64]uint32

var noPage unique.Handle[page]

// set contains one proxy's version ids of one type, by name index. Its pages are interned, so proxies with equal pages
// share them. Changes are made on one open page at a time, which seal interns.
type set struct {
	pages []unique.Handle[page]
	open  *page // a copy of page `at`
	at    int
	count int // number of held names
}

var openPages = sync.Pool{New: func() any { return new(page) }}

func (s *set) get(index uint32) uint32 {
	p := int(index / 64)
	if s.open != nil && s.at == p {
		return s.open[index%64]
	}
	if p >= len(s.pages) || s.pages[p] == noPage {
		return 0
	}
	return s.pages[p].Value()[index%64]
}

// lacks returns the names of `of` that are not held; nil: all are held.
func (s *set) lacks(of bitset) (without bitset) {
	s.seal()
	for p, word := range of {
		if p < len(s.pages) && s.pages[p] != noPage {
			for i, id := range s.pages[p].Value() {
				if id != 0 {
					word &^= 1 << i
				}
			}
		}
		if word != 0 {
			if without == nil {
				without = make(bitset, len(of))
			}
			without[p] = word
		}
	}
	return without
}

// put stores the version of a name; 0 removes the name.
func (s *set) put(index, id uint32) {
	p := int(index / 64)
	if s.open == nil || s.at != p {
		s.seal()
		s.open, s.at = openPages.Get().(*page), p
		*s.open = page{}
		if p < len(s.pages) && s.pages[p] != noPage {
			*s.open = s.pages[p].Value()
		}
	}
	old := s.open[index%64]
	switch {
	case old == 0 && id != 0:
		s.count++
	case old != 0 && id == 0:
		s.count--
	}
	s.open[index%64] = id
}

// seal interns the open page.
func (s *set) seal() {
	if s.open == nil {
		return
	}
	for len(s.pages) <= s.at {
		s.pages = append(s.pages, noPage)
	}
	if s.pages[s.at] = noPage; *s.open != (page{}) {
		s.pages[s.at] = unique.Make(*s.open)
	}
	openPages.Put(s.open)
	s.open = nil
}

// all yields the name index and version id of everything held.
func (s *set) all() iter.Seq2[uint32, uint32] {
	return func(yield func(uint32, uint32) bool) {
		s.seal()
		for p, h := range s.pages {
			if h == noPage {
				continue
			}
			for i, id := range h.Value() {
				if id != 0 && !yield(uint32(p*64+i), id) {
					return
				}
			}
		}
	}
}

// bitset is a set of name indexes.
type bitset []uint64

func (b bitset) has(i uint32) bool { return int(i/64) < len(b) && b[i/64]&(1<<(i%64)) != 0 }

// add adds i, and reports whether it was new.
func (b *bitset) add(i uint32) bool {
	if n := int(i/64) + 1; n > len(*b) {
		grown := make(bitset, (n+7)&^7) // names arrive in order
		copy(grown, *b)
		*b = grown
	}
	was := b.has(i)
	(*b)[i/64] |= 1 << (i % 64)
	return !was
}

// drop removes i, and reports whether it was present. An empty set uses no memory.
func (b *bitset) drop(i uint32) bool {
	if !b.has(i) {
		return false
	}
	(*b)[i/64] &^= 1 << (i % 64)
	if (*b)[i/64] == 0 && b.empty() {
		*b = nil
	}
	return true
}

func (b bitset) empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

func (b bitset) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i, w := range b {
			for ; w != 0; w &= w - 1 {
				if !yield(uint32(i*64 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// dependency counts, for each name, the answers that a server may still send although the proxy may have the resource:
// one for each request. A server that reads two requests before it answers sends one answer, so the count is an upper
// bound.
type dependency struct {
	one  bitset
	more map[uint32]int // the count beyond one; nil: no such name
}

// ask adds one answer.
func (o *dependency) ask(i uint32) {
	if o.one.add(i) {
		return
	}
	if o.more == nil {
		o.more = map[uint32]int{}
	}
	o.more[i]++
}

// expect allows one answer if none is due: the proxy sent no request, and the server may still send the resource.
func (o *dependency) expect(i uint32) { o.one.add(i) }

// answer removes one answer, and reports whether one was due.
func (o *dependency) answer(i uint32) bool {
	n, ok := o.more[i]
	if !ok {
		return o.one.drop(i)
	}
	if o.more[i] = n - 1; n == 1 {
		delete(o.more, i)
	}
	if len(o.more) == 0 {
		o.more = nil
	}
	return true
}

func (o *dependency) empty() bool { return o.one == nil && o.more == nil }

// differs describes how one proxy's resources differ from those of another of its View; empty: they are equal.
func (f *Fleet) differs(model, s *sim, t xds.Type) string {
	a, b := model.pages(t), s.pages(t)
	for p := range max(len(a), len(b)) {
		var x, y page
		if p < len(a) {
			x = a[p]
		}
		if p < len(b) {
			y = b[p]
		}
		if x == y {
			continue
		}
		for i := range x {
			if x[i] != y[i] {
				name := f.names.at(t, uint32(p*64+i)).name
				return fmt.Sprintf("%s: %s, but %s", name, f.versionText(y[i]), model.id.String()+" has "+f.versionText(x[i]))
			}
		}
	}
	return ""
}

func (f *Fleet) versionText(id uint32) string {
	if id == 0 {
		return "none"
	}
	if v := f.names.version(id); v != nil {
		return fmt.Sprintf("version %.40q", v.text)
	}
	return "another version"
}

// pages returns a copy of the held versions of one type.
func (s *sim) pages(t xds.Type) []page {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := &s.held[t]
	held.seal()
	all := make([]page, len(held.pages))
	for i, h := range held.pages {
		if h != noPage {
			all[i] = h.Value()
		}
	}
	return all
}
