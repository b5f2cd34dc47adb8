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

// maxRecent is the number of lists that are found without sorting.
const maxRecent = 256

// Names interns subscriptions, so that proxies with equal ones share them. A list that another proxy sent recently, and
// that a stream still keeps, is found by the sum of its names, without copying or sorting. Only streams keep lists
// alive. A request for far more names than may be kept (bound.go) leaves nothing after it is processed, and a stream
// leaves nothing after its end. Names is safe for concurrent use; the zero Names is ready.
type Names struct {
	table  intern.Table[string]
	once   sync.Once
	recent *lru.Cache[manifest.NameSum, intern.Weak[string]]
}

// found returns the recent list with a sum, if there is one.
func (n *Names) found(sum manifest.NameSum) (intern.List[string], bool) {
	n.once.Do(func() {
		n.recent, _ = lru.New[manifest.NameSum, intern.Weak[string]](maxRecent) // an error only for sizes below 1
	})
	weak, _ := n.recent.Get(sum) // the zero Weak refers to no list
	return weak.List()
}

// sorted interns a sorted list without repetitions.
func (n *Names) sorted(names ...string) intern.List[string] { return n.table.List(names...) }

// intern returns the list of the requested names, in any order and without the wildcard, and the list's sum. asked is
// the sum of the requested names.
func (n *Names) intern(requested iter.Seq[string], asked manifest.NameSum) (intern.List[string], manifest.NameSum) {
	if asked.Len == 0 {
		return intern.List[string]{}, asked
	}
	if known, ok := n.found(asked); ok {
		return known, asked
	}
	listed := slices.DeleteFunc(Collect(requested), func(name string) bool { return name == wildcard })
	names := n.table.List(listed...)
	if len(listed) < asked.Len { // a name was listed twice
		return names, sumOf(listed)
	}
	n.recent.Add(asked, names.Weak())
	return names, asked
}

// Collect copies the names of a request, sorted and without repetitions; nil for a nil request.
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
