package kube

import (
	"crypto/sha256"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
)

// name is what an object of a kind is known by.
type name struct{ namespace, name string }

// sum is what is kept of an object that was told: a hash of its content.
type sum [16]byte

// table is what was told of one kind. It is pure, and its owner's.
type table map[name]sum

// put takes an object as it is now; false: that was told before.
func (t table) put(o *object.Object) bool {
	n := name{o.ID.Namespace, o.ID.Name}
	full := sha256.Sum256(o.JSON)
	now := sum(full[:len(sum{})])
	if before, known := t[n]; known && before == now {
		return false
	}
	t[n] = now
	return true
}

// remove takes an object away; false: it was not told.
func (t table) remove(n name) bool {
	_, known := t[n]
	delete(t, n)
	return known
}

// absent is what was told, and is not there, sorted.
func (t table) absent(there map[name]bool) (gone []name) {
	for n := range t {
		if !there[n] {
			gone = append(gone, n)
		}
	}
	slices.SortFunc(gone, func(a, b name) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return gone
}
