package host

import (
	"maps"
	"weak"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
)

// Hosts is what a front reads: a Table, or a Variation of it.
type Hosts interface {
	Get(name string) *Host
	ClusterFor(name, subset string, port, listenPort uint32) (Outbound, bool)
}

// Variation is a table as proxies with certain inputs see it: hosts whose rules read the inputs are others, all else is the table's.
type Variation struct {
	Inputs view.Inputs
	Layer  *layer.Layer // has what is different for these proxies

	table *Table
	hosts map[string]*Host     // whose rules read the inputs
	hides map[string][]xds.Ref // what the layer hides of the table's because of each
	own   own                  // as last planned
}

// Vary makes a variation, and plans the hosts that are different in it into a layer.
func (t *Table) Vary(inputs view.Inputs, to *layer.Layer) *Variation {
	v := &Variation{Inputs: inputs, Layer: to, table: t, hosts: map[string]*Host{}, hides: map[string][]xds.Ref{}}
	for name, h := range t.hosts.All() {
		if h.reads != (view.Reads{}) {
			v.Resolve(name, decided)
			t.rest()
		}
	}
	v.planOwn()
	return v
}

// Fork is a copy for the copy of a table (Table.Fork), into another layer.
func (v *Variation) Fork(of *Table, to *layer.Layer) *Variation {
	return &Variation{Inputs: v.Inputs, Layer: to, table: of, hosts: maps.Clone(v.hosts), hides: maps.Clone(v.hides), own: v.own}
}

// Get is a host by its name; nil: the scope knows none.
func (v *Variation) Get(name string) *Host {
	if h := v.hosts[name]; h != nil {
		return h
	}
	return v.table.Get(name)
}

// ClusterFor is Table.ClusterFor.
func (v *Variation) ClusterFor(name, subset string, port, listenPort uint32) (Outbound, bool) {
	return v.table.clusterFor(v, name, subset, port, listenPort)
}

// Resolve plans a host again that the table has resolved. Where `what` names neither clusters nor assignments, the host stays as it is (Table.Resolve).
func (v *Variation) Resolve(name string, what input.Types) {
	if !what.Has(decided) {
		return
	}
	v.followOwn(name)
	base := v.table.Get(name)
	inputs, reads := v.read(base)
	if !reads {
		v.keep(name, base, nil)
		return
	}
	h := &Host{Name: name, Service: base.Service, joined: base.joined, Rules: base.Rules}
	if len(base.selectors) > 0 {
		h.Rules, h.selectors = v.table.rulesFor(name, base.Service, inputs)
	}
	v.planClusters(h, base, inputs)
	v.planEndpoints(h, base, inputs)
	v.keep(name, base, base.share(h, inputs))
}

// Follow plans what depends on a host's endpoints alone, as the table has done (Table.Follow).
func (v *Variation) Follow(name string, what input.Types) {
	if what.Has(input.EDS) {
		v.followOwn(name)
	}
	old := v.hosts[name]
	if old == nil {
		return
	}
	base, h := v.table.Get(name), *old
	h.varied = nil
	inputs, _ := v.read(base)
	if what.Has(input.CDS) {
		v.planClusters(&h, base, inputs)
	}
	if what.Has(input.EDS) {
		v.planEndpoints(&h, base, inputs)
	}
	v.keep(name, base, base.share(&h, inputs))
}

// read is what the rules of a host read of the inputs; false: nothing, the host is the table's.
func (v *Variation) read(base *Host) (view.Inputs, bool) {
	if base == nil || base.Service == nil {
		return view.Inputs{}, false
	}
	inputs := base.reads.Of(v.Inputs)
	return inputs, inputs != view.Inputs{}
}

// planClusters plans the clusters of a host: the table's, unless selectors or the proxy's place decide about them.
func (v *Variation) planClusters(h, base *Host, inputs view.Inputs) {
	if len(base.selectors) == 0 && !base.placed {
		h.clusters, h.reads = base.clusters, base.reads
		return
	}
	var found []input.Problem // the same as the table's
	v.table.clustersOf(h, inputs, &found)
}

// planEndpoints plans the assignments. Those that the table has, or another variation that reads the same of its proxies, most likely
// are the same.
func (v *Variation) planEndpoints(h, base *Host, inputs view.Inputs) {
	known := base.endpoints
	if other := base.varied[inputs].Value(); other != nil {
		known = other.endpoints
	}
	var found []input.Problem // the same as the table's
	h.endpoints = v.table.assignmentsOf(h, inputs, known, &found)
}

// share is the host to keep in place of one that this host became for proxies with certain inputs: an equal one that another variation
// has, or h.
func (base *Host) share(h *Host, inputs view.Inputs) *Host {
	if other := base.varied[inputs].Value(); other != nil && other.equal(h) {
		return other
	}
	if base.varied == nil {
		base.varied = map[view.Inputs]weak.Pointer[Host]{}
	}
	if n := len(base.varied); n&(n-1) == 0 { // at each doubling: what no variation has any more goes
		maps.DeleteFunc(base.varied, func(_ view.Inputs, p weak.Pointer[Host]) bool { return p.Value() == nil })
	}
	base.varied[inputs] = weak.Make(h)
	return h
}

// keep keeps a host in place of the one before, and shows in the layer what differs; nil: it is the table's.
func (v *Variation) keep(name string, base, now *Host) {
	v.show(name, base, now)
	if now == nil {
		delete(v.hosts, name)
	} else {
		v.hosts[name] = now
	}
}

// show puts into the layer in what a host differs from the table's, in place of what it had because of it before.
func (v *Variation) show(name string, base, now *Host) {
	for _, u := range v.hosts[name].units() {
		v.Layer.Remove(u.Res.Type, u.Res.Name)
	}
	for _, ref := range v.hides[name] {
		v.Layer.Remove(ref.Type, ref.Name)
	}
	delete(v.hides, name)
	if now == nil {
		return
	}
	have, want := base.byRef(), now.byRef()
	for ref, u := range have {
		if _, is := want[ref]; !is && !v.table.layer.Reserved(u.Res) {
			v.Layer.Hide(ref.Type, ref.Name)
			v.hides[name] = append(v.hides[name], ref)
		}
	}
	for ref, u := range want {
		if have[ref] != u && !v.table.layer.Reserved(u.Res) {
			v.Layer.Put(u.Res)
		}
	}
}

// byRef has all resources of a host by what they are called.
func (h *Host) byRef() map[xds.Ref]layer.Unit {
	all := map[xds.Ref]layer.Unit{}
	for _, u := range h.units() {
		all[xds.Ref{Type: u.Res.Type, Name: u.Res.Name}] = u
	}
	return all
}

// units are all resources of a host; none of nil.
func (h *Host) units() []layer.Unit {
	if h == nil {
		return nil
	}
	return append(units(h.clusters), h.endpoints...)
}
