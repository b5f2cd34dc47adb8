package host

import (
	"maps"
	"sync"
	"weak"

	"navarch.io/navarch/push/view"
)

// versions stores the versions of one host. A version is the Host as it is planned for proxies with certain inputs.
// Inputs are the properties of proxies, such as labels, that rules read. A version is dropped once no Variation uses
// it. All scopes that share the host share its versions, even if different goroutines own the scopes (Table.Fork). A
// nil *versions is empty and stores nothing.
type versions struct {
	mu    sync.Mutex // guards known; no other lock is acquired while it is held
	known map[view.Inputs]weak.Pointer[Host]
}

// of returns the version for proxies with the given inputs, or nil.
func (vs *versions) of(inputs view.Inputs) *Host {
	if vs == nil {
		return nil
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.known[inputs].Value()
}

// share returns the stored version for the given inputs if it equals h. If there is no equal version, it stores and
// returns h.
func (vs *versions) share(h *Host, inputs view.Inputs) *Host {
	if vs == nil {
		return h
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if other := vs.known[inputs].Value(); other != nil && other.equal(h) {
		return other
	}
	if vs.known == nil {
		vs.known = map[view.Inputs]weak.Pointer[Host]{}
	}
	if n := len(vs.known); n&(n-1) == 0 { // at each doubling, entries that no variation uses any more are dropped
		maps.DeleteFunc(vs.known, func(_ view.Inputs, p weak.Pointer[Host]) bool { return p.Value() == nil })
	}
	vs.known[inputs] = weak.Make(h)
	return h
}
