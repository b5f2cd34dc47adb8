package input

import (
	"iter"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// multimap maps names to lists of values. It is immutable, except between change and seal. Copies share the tree, so a
// copy is cheap.
type multimap[V any] struct {
	tree *iradix.Tree[V] // by name and id of the value; nil if it is empty
	txn  *iradix.Txn[V]  // set between change and seal
}

// change returns a copy that put may change until seal is called.
func (r multimap[V]) change() multimap[V] {
	if r.tree == nil {
		r.tree = iradix.New[V]()
	}
	return multimap[V]{txn: r.tree.Txn()}
}

// seal ends the changes.
func (r *multimap[V]) seal() { *r = multimap[V]{tree: r.txn.Commit()} }

// put adds a value to the list of a name if the last argument is true, and removes the value if it is false. The
// parameter id identifies the value within the list.
func (r *multimap[V]) put(name, id string, value V, there bool) {
	key := []byte(name + "\x00" + id)
	if there {
		r.txn.Insert(key, value)
	} else {
		r.txn.Delete(key)
	}
}

// of yields the values of a name.
func (r *multimap[V]) of(name string) iter.Seq[V] { return r.under(name + "\x00") }

// under yields the values of all names that begin with a prefix. It does not call named, since two nested iterators
// would allocate at each look-up.
func (r *multimap[V]) under(prefix string) iter.Seq[V] {
	return func(yield func(V) bool) {
		if r.tree == nil {
			return
		}
		entries := r.tree.Root().Iterator()
		entries.SeekPrefix([]byte(prefix))
		for _, value, ok := entries.Next(); ok; _, value, ok = entries.Next() {
			if !yield(value) {
				return
			}
		}
	}
}

// named yields the values of all names that begin with a prefix, each with its name.
func (r *multimap[V]) named(prefix string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if r.tree == nil {
			return
		}
		entries := r.tree.Root().Iterator()
		entries.SeekPrefix([]byte(prefix))
		for key, value, ok := entries.Next(); ok; key, value, ok = entries.Next() {
			if name, _, _ := strings.Cut(string(key), "\x00"); !yield(name, value) {
				return
			}
		}
	}
}

// has reports whether a name has a value.
func (r *multimap[V]) has(name string) bool {
	for range r.of(name) {
		return true
	}
	return false
}

// empty reports whether there are no values.
func (r *multimap[V]) empty() bool { return r.tree == nil || r.tree.Len() == 0 }
