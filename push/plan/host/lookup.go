package host

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/model"
)

// lookups caches, until Table.Done, results that would otherwise be computed for each host of a step from all hosts of
// the scope, or from all hosts of a VirtualService. Both may be thousands: with the cache the time of a step grows with
// their sum, not with their product.
type lookups struct {
	covered  int      // calls of Covered
	names    []string // of all hosts, sorted by compareSuffixes; may contain removed hosts; nil: to be read again
	overlaps map[overlap]bool
}

// overlap is the key of lookups.overlaps.
type overlap struct {
	im *Imports
	vs *model.VirtualService
}

// fewPatterns is the number of patterns up to which a linear search of all names for each costs less than sorting the
// names once: some eleven comparisons for each of 2,000 names.
const fewPatterns = 16

// Covered calls f with the name of each host that a wildcard covers, including the wildcard itself if it is a host. For
// a pattern without wildcard it calls f with the pattern, if that is a host.
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

// compareSuffixes compares names from their ends, so that names with a common suffix are adjacent, behind the suffix
// itself.
func compareSuffixes(a, b string) int {
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		if a[i] != b[j] {
			return int(a[i]) - int(b[j])
		}
	}
	return len(a) - len(b)
}

// overlap reports whether some host of a VirtualService is imported, from the cache if possible.
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

// Done drops the cached lookups. It has to be called after each planned step or variation.
func (t *Table) Done() { t.lookups = lookups{} }
