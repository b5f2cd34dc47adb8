package delta

import (
	"iter"
	"slices"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/store/intern"
)

// maxRecent is how many lists are found without being sorted.
const maxRecent = 256

// Names interns subscriptions, so that proxies with equal ones share them. A list that another proxy has sent of late, and that a stream
// still keeps, is found by the sum of its names: nothing is copied and nothing sorted. Lists themselves are held by streams alone: of one
// that asks for far more than may be kept (bound.go) nothing stays when its request is done, and nothing at all when it ends (issue 12,
// "Done when"). Safe for concurrent use; the zero Names is ready.
type Names struct {
	table  intern.Table[string]
	once   sync.Once
	recent *lru.Cache[manifest.NameSum, intern.Weak[string]]
}

// found is the list of a sum, where it is one of late.
func (n *Names) found(sum manifest.NameSum) (intern.List[string], bool) {
	n.once.Do(func() {
		n.recent, _ = lru.New[manifest.NameSum, intern.Weak[string]](maxRecent) // an error for sizes below 1
	})
	weak, _ := n.recent.Get(sum) // the zero one is gone
	return weak.List()
}

// sorted interns a list that is sorted and has no name twice.
func (n *Names) sorted(names ...string) intern.List[string] { return n.table.List(names...) }

// intern is the list of the names that a request lists in whatever order, the wildcard left out, and the list's sum; asked is
// the sum of what is listed.
func (n *Names) intern(requested iter.Seq[string], asked manifest.NameSum) (intern.List[string], manifest.NameSum) {
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
	n.recent.Add(asked, names.Weak())
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
