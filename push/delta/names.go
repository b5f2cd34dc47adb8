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

// maxRecent is the maximum number of recent lists that can be found by their sum.
const maxRecent = 256

// Names interns subscriptions, so that proxies with equal subscriptions share them. A list that another proxy sent
// recently is found by the sum of its names (a hash), without copying or sorting. Names has only weak references to
// lists, so only streams keep lists alive. Names is safe for concurrent use. The zero Names is ready for use.
type Names struct {
	table  intern.Table[string]
	once   sync.Once
	recent *lru.Cache[manifest.NameSum, intern.Weak[string]]
}

// found returns the recent list whose names have the given sum. It returns false if there is no such list, or if the
// list was collected as garbage.
func (n *Names) found(sum manifest.NameSum) (intern.List[string], bool) {
	n.once.Do(func() {
		n.recent, _ = lru.New[manifest.NameSum, intern.Weak[string]](maxRecent) // fails only for a size below 1
	})
	weak, _ := n.recent.Get(sum) // the zero Weak refers to no list
	return weak.List()
}

// sorted interns a list, which must be sorted and without repetitions.
func (n *Names) sorted(names ...string) intern.List[string] { return n.table.List(names...) }

// intern returns the sorted list of the requested names without the wildcard, and the list's sum. The argument
// requested may be in any order, and may repeat names. The argument asked is the sum of its names.
func (n *Names) intern(requested iter.Seq[string], asked manifest.NameSum) (intern.List[string], manifest.NameSum) {
	if asked.Len == 0 {
		return intern.List[string]{}, asked
	}
	if known, ok := n.found(asked); ok {
		return known, asked
	}
	listed := slices.DeleteFunc(Collect(requested), func(name string) bool { return name == wildcard })
	names := n.table.List(listed...)
	if len(listed) < asked.Len { // a name was repeated
		return names, sumOf(listed)
	}
	n.recent.Add(asked, names.Weak())
	return names, asked
}

// Collect returns copies of names, sorted and without repetitions. For nil and for an empty sequence it returns nil.
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
