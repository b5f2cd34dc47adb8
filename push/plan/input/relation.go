package input

import (
	"iter"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// relation has lists of values by name. Immutable between seal and change, and cheap to copy: the copy shares the tree.
type relation[V any] struct {
	tree *iradix.Tree[V] // by name and what tells the values of one name apart; nil: it is empty
	txn  *iradix.Txn[V]  // between change and seal
}

// change is a copy that takes put, until seal.
func (r relation[V]) change() relation[V] {
	if r.tree == nil {
		r.tree = iradix.New[V]()
	}
	return relation[V]{txn: r.tree.Txn()}
}

func (r *relation[V]) seal() { *r = relation[V]{tree: r.txn.Commit()} }

// put has a value in the list of a name, or no longer. id tells it apart from others of the name.
func (r *relation[V]) put(name, id string, value V, there bool) {
	key := []byte(name + "\x00" + id)
	if there {
		r.txn.Insert(key, value)
	} else {
		r.txn.Delete(key)
	}
}

// of are the values of a name.
func (r *relation[V]) of(name string) iter.Seq[V] { return r.under(name + "\x00") }

// under are the values of all names that begin with a prefix.
func (r *relation[V]) under(prefix string) iter.Seq[V] {
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

// all are the names and their values.
func (r *relation[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if r.tree == nil {
			return
		}
		entries := r.tree.Root().Iterator()
		for key, value, ok := entries.Next(); ok; key, value, ok = entries.Next() {
			if name, _, _ := strings.Cut(string(key), "\x00"); !yield(name, value) {
				return
			}
		}
	}
}

func (r *relation[V]) has(name string) bool {
	for range r.of(name) {
		return true
	}
	return false
}

func (r *relation[V]) empty() bool { return r.tree == nil || r.tree.Len() == 0 }
