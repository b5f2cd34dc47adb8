package ingest

import (
	"net/netip"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// manyObjects is the number of objects from which tools use all cores.
const manyObjects = 64

// changingOwners returns the number of the first objects after which no object changes the owners of hosts and
// addresses: these owners are Services and ServiceEntries.
func (w *inventory) changingOwners(all []*node) int {
	for i := len(all); i > 0; i-- {
		if kind := all[i-1].ID().Kind; kind == "Service" || kind == "ServiceEntry" {
			return i
		}
	}
	return 0
}

// normaliseAhead normalises objects on all cores, before renewAll normalises each of them in its turn, and stores the
// results in w.ahead. Parsed forms do not change meanwhile. The owners of hosts and addresses do, unless the argument
// owned is set: an object that looks them up then gets no result. Neither does an object whose normalisation panics.
// It is for tools: the leader leaves the other cores to other roles.
func (w *inventory) normaliseAhead(nodes []*node, owned bool) {
	if len(nodes) < w.parallel {
		return
	}
	results := make([]*normal.Result, len(nodes))
	loop.Each(len(nodes), func(i int) { results[i] = w.resultAhead(nodes[i], owned) })
	w.ahead = make(map[*node]*normal.Result, len(nodes))
	for i, n := range nodes {
		if results[i] != nil {
			w.ahead[n] = results[i]
		}
	}
}

// resultAhead normalises one object for normaliseAhead; nil: the object gets no result.
func (w *inventory) resultAhead(n *node, owned bool) (r *normal.Result) {
	defer func() {
		if recover() != nil {
			r = nil // the object panics again in its turn, and is reported there
		}
	}()
	only := &concurrent{Lookup: w.objects, owned: owned}
	result := w.normal.Object(n.Object(), only)
	if only.missed {
		return nil
	}
	return &result
}

// concurrent is a Lookup for one object while other goroutines look up others. The field missed is set after a lookup
// that it cannot answer: a Pod by its address, for which an index may be built, and owners unless owned is set.
type concurrent struct {
	normal.Lookup
	owned, missed bool
}

// PodAt returns nil.
func (c *concurrent) PodAt(object.ID) *normal.Pod {
	c.missed = true
	return nil
}

// OwnPod returns false.
func (c *concurrent) OwnPod(object.ID, netip.Addr) bool {
	c.missed = true
	return false
}

// Services returns the owners of a host.
func (c *concurrent) Services(host string) []*model.Service {
	if c.miss() {
		return nil
	}
	return c.Lookup.Services(host)
}

// Below returns the ServiceEntries with a host that a wildcard covers.
func (c *concurrent) Below(wildcard string) []*model.Service {
	if c.miss() {
		return nil
	}
	return c.Lookup.Below(wildcard)
}

// At returns the Services with an address, and reports whether a Pod has it.
func (c *concurrent) At(a netip.Addr) ([]*model.Service, bool) {
	if c.miss() {
		return nil, false
	}
	return c.Lookup.At(a)
}

// Within returns an address of a Service or Pod in a network.
func (c *concurrent) Within(network netip.Prefix) netip.Addr {
	if c.miss() {
		return netip.Addr{}
	}
	return c.Lookup.Within(network)
}

// miss reports whether owners may change, and sets missed in this case.
func (c *concurrent) miss() bool {
	c.missed = c.missed || !c.owned
	return !c.owned
}
