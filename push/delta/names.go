package delta

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/store/intern"
)

// maxRecent is how many lists are found without being sorted, and maxRecentBytes about how much memory they hold.
const (
	maxRecent      = 256
	maxRecentBytes = 32 << 20
)

// Names interns subscriptions, so that proxies with equal ones share them. A list that another proxy has sent of late is
// found by the sum of its names: nothing is copied and nothing sorted. Safe for concurrent use; the zero Names is ready.
type Names struct {
	table  intern.Table[string]
	once   sync.Once
	recent *lru.Cache[manifest.NameSum, intern.List[string]]
	bytes  atomic.Int64 // of recent
}

// found is the list of a sum, where it is one of late.
func (n *Names) found(sum manifest.NameSum) (intern.List[string], bool) {
	n.once.Do(func() {
		n.recent, _ = lru.NewWithEvict(maxRecent, func(sum manifest.NameSum, _ intern.List[string]) { n.bytes.Add(-sizeOf(sum)) }) // an error for sizes below 1
	})
	return n.recent.Get(sum)
}

// remember has a list found by its sum.
func (n *Names) remember(sum manifest.NameSum, list intern.List[string]) {
	if _, there, _ := n.recent.PeekOrAdd(sum, list); there {
		return
	}
	for n.bytes.Add(sizeOf(sum)); n.bytes.Load() > maxRecentBytes; {
		if _, _, ok := n.recent.RemoveOldest(); !ok {
			return
		}
	}
}

// sizeOf is about what a list holds, in bytes.
func sizeOf(sum manifest.NameSum) int64 { return int64(sum.Bytes + 16*sum.Len) }

// sorted interns a list that is sorted and has no name twice.
func (n *Names) sorted(names ...string) intern.List[string] { return n.table.List(names...) }

// of is the list of the names that a request lists in whatever order, the wildcard left out, and the list's sum; asked is
// the sum of what is listed.
func (n *Names) of(requested iter.Seq[string], asked manifest.NameSum) (intern.List[string], manifest.NameSum) {
	if asked.Len == 0 {
		return intern.List[string]{}, asked
	}
	if known, ok := n.found(asked); ok {
		return known, asked
	}
	listed := slices.DeleteFunc(Collect(requested), func(name string) bool { return name == wildcard })
	names := n.table.List(listed...)
	if len(listed) < asked.Len { // a name twice
		return names, sumOf(listed)
	}
	n.remember(asked, names)
	return names, asked
}

// Collect copies the names out of a request, sorted, each once; nil: none.
func Collect(names iter.Seq[string]) []string {
	if names == nil {
		return nil
	}
	var all []string
	for name := range names {
		all = append(all, strings.Clone(name))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
