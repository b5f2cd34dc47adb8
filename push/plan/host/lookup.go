package host

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/model"
)

// lookups caches results until Table.Done. Without the cache, a plan would visit all hosts of the table, or all hosts
// of a VirtualService, for each planned host. With thousands of hosts this would take too long.
type lookups struct {
	covered  int      // number of calls of Covered
	names    []string // names of all hosts, sorted by compareSuffixes; may include removed hosts; nil if not computed
	overlaps map[overlap]bool
}

// overlap is the key of lookups.overlaps.
type overlap struct {
	im *Imports
	vs *model.VirtualService
}

// fewPatterns is the number of calls of Covered that may search the names one by one. Later calls search a sorted list.
// Sorting 2,000 names takes some eleven comparisons per name, so it is not worthwhile for a few calls.
const fewPatterns = 16

// Covered calls f with the name of each host of the table that equals a pattern or is covered by it, in no order. The
// pattern may be a wildcard or a plain host name. f must not add hosts to the table.
func (t *Table) Covered(pattern string, f func(name string)) {
	suffix, wildcard := strings.CutPrefix(pattern, "*")
	t.lookups.covered++
	switch {
	case !wildcard:
		if t.Get(pattern) != nil {
			f(pattern)
		}
		return
	case t.lookups.covered <= fewPatterns || pattern == "*":
		for name := range t.hosts.All() {
			if input.Covers(pattern, name) {
				f(name)
			}
		}
		return
	}
	if t.lookups.names == nil {
		for name := range t.hosts.All() {
			t.lookups.names = append(t.lookups.names, name)
		}
		slices.SortFunc(t.lookups.names, compareSuffixes)
	}
	from, _ := slices.BinarySearchFunc(t.lookups.names, suffix, compareSuffixes)
	for _, name := range t.lookups.names[from:] {
		if !strings.HasSuffix(name, suffix) {
			break
		}
		if input.Covers(pattern, name) && t.Get(name) != nil {
			f(name)
		}
	}
}

// compareSuffixes compares names byte by byte from their ends. Its result has the sign of cmp.Compare. In this order,
// names with a common suffix are adjacent, and follow the suffix.
func compareSuffixes(a, b string) int {
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		if a[i] != b[j] {
			return int(a[i]) - int(b[j])
		}
	}
	return len(a) - len(b)
}

// overlap returns the result of Imports.overlaps, from the cache if possible. It is true for Imports of everything.
func (t *Table) overlap(im *Imports, vs *model.VirtualService) bool {
	if im.Everything() {
		return true
	}
	key := overlap{im, vs}
	is, known := t.lookups.overlaps[key]
	if !known {
		if t.lookups.overlaps == nil {
			t.lookups.overlaps = map[overlap]bool{}
		}
		is = im.overlaps(vs)
		t.lookups.overlaps[key] = is
	}
	return is
}

// Done drops cached results of lookups. It must be called after each planned step or variation.
func (t *Table) Done() { t.lookups = lookups{} }
