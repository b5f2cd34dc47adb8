package host

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
)

// Hosts is the common interface of Table and Variation, for reading.
type Hosts interface {
	// Get returns a host by its name, or nil if the scope has no such host.
	Get(name string) *Host
	// ClusterFor resolves a destination to a cluster, see Table.ClusterFor.
	ClusterFor(name, subset string, port, listenPort uint32) (Outbound, bool)
}

// Variation contains the differences from a Table for the proxies with certain inputs. Inputs are properties of a
// proxy, such as labels, that some rules read. For a host whose rules read the inputs, a Variation has its own version,
// if that version differs from the table's host. All other hosts are the hosts of the table. Only the goroutine of the
// table may use a Variation.
type Variation struct {
	Inputs view.Inputs
	Layer  *layer.Layer // contains the differences from the table's layer

	table *Table
	hosts map[string]*Host     // the hosts that differ from the table's
	hides map[string][]xds.Ref // host -> resources of the table's layer that Layer hides
	own   own                  // the assignment of the proxies' own workload
}

// Vary returns the variation of the table for the given inputs. It plans the hosts whose rules read inputs, and stores
// the differing resources in the given layer. In each later step, the caller must call Resolve or Follow of the
// variation for each host for which it called that method of the table.
func (t *Table) Vary(inputs view.Inputs, to *layer.Layer) *Variation {
	v := &Variation{Inputs: inputs, Layer: to, table: t, hosts: map[string]*Host{}, hides: map[string][]xds.Ref{}}
	for name, h := range t.hosts.All() {
		if h.reads != (view.Reads{}) {
			v.Resolve(name, decided)
			t.yield()
		}
	}
	v.planOwn()
	return v
}

// Fork returns a copy of the variation for a fork of the table (Table.Fork), with another layer. Changes of one
// variation do not affect the other.
func (v *Variation) Fork(of *Table, to *layer.Layer) *Variation {
	return &Variation{Inputs: v.Inputs, Layer: to, table: of, hosts: maps.Clone(v.hosts), hides: maps.Clone(v.hides), own: v.own}
}

// Get returns a host by its name, or nil if the scope has no such host.
func (v *Variation) Get(name string) *Host {
	if h := v.hosts[name]; h != nil {
		return h
	}
	return v.table.Get(name)
}

// ClusterFor resolves a destination, as Table.ClusterFor does, for the proxies of the variation.
func (v *Variation) ClusterFor(name, subset string, port, listenPort uint32) (Outbound, bool) {
	return v.table.clusterFor(v, name, subset, port, listenPort)
}

// Resolve plans the variation's version of a host again, after Table.Resolve with the same arguments. If types has
// neither input.CDS nor input.EDS, the host stays unchanged. A host that the table does not have loses its version in
// the variation.
func (v *Variation) Resolve(name string, types input.Types) {
	if !types.Has(decided) {
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
	v.keepShared(h, base, inputs)
}

// Follow plans the parts of a host that depend on its endpoints again, after Table.Follow with the same arguments.
// Hosts whose rules read no inputs stay unchanged.
func (v *Variation) Follow(name string, types input.Types) {
	if types.Has(input.EDS) {
		v.followOwn(name)
	}
	base, old := v.table.Get(name), v.hosts[name]
	inputs, reads := v.read(base)
	if old == nil {
		if !reads {
			return
		}
		old = base // as before the step, the version of the variation is equal to the table's
	}
	h := *old
	h.varied = nil
	if types.Has(input.CDS) {
		v.planClusters(&h, base, inputs)
	}
	if types.Has(input.EDS) {
		v.planEndpoints(&h, base, inputs)
	}
	v.keepShared(&h, base, inputs)
}

// keepShared stores a new version of a host in the variation, or an equal version of another variation. A version that
// equals the table's host is dropped, which saves memory.
func (v *Variation) keepShared(h, base *Host, inputs view.Inputs) {
	if h.equal(base) {
		v.keep(h.Name, base, nil)
		return
	}
	v.keep(h.Name, base, base.varied.share(h, inputs))
}

// read returns the inputs that the rules of a host read. All other inputs are zero in the result. If all are zero, it
// returns false, and the variation uses the table's host.
func (v *Variation) read(base *Host) (view.Inputs, bool) {
	if base == nil || base.Service == nil {
		return view.Inputs{}, false
	}
	inputs := base.reads.Of(v.Inputs)
	return inputs, inputs != view.Inputs{}
}

// planClusters plans the clusters of a host. It uses the table's clusters, unless these depend on selectors or on the
// proxy's place.
func (v *Variation) planClusters(h, base *Host, inputs view.Inputs) {
	if len(base.selectors) == 0 && !base.placed {
		h.clusters, h.reads = base.clusters, base.reads
		return
	}
	var found []input.Problem // dropped: the table reports the same problems
	v.table.clustersOf(h, inputs, &found)
}

// planEndpoints plans the assignments of a host. It reuses equal assignments of another variation whose proxies have
// the same inputs. Without such a variation it reuses equal assignments of the table.
func (v *Variation) planEndpoints(h, base *Host, inputs view.Inputs) {
	known := base.endpoints
	if other := base.varied.of(inputs); other != nil {
		known = other.endpoints
	}
	var found []input.Problem // dropped: the table reports the same problems
	h.endpoints = v.table.assignmentsOf(h, inputs, known, &found)
}

// keep replaces the variation's version of a host, and updates the layer. The parameter base is the table's host. The
// parameter version is the new version. If it is nil, the variation uses the table's host.
func (v *Variation) keep(name string, base, version *Host) {
	v.show(name, base, version)
	if version == nil {
		delete(v.hosts, name)
	} else {
		v.hosts[name] = version
	}
}

// show replaces a host's resources in the layer. The new resources are the differences between version and the table's
// host (the parameter base).
func (v *Variation) show(name string, base, version *Host) {
	for _, u := range v.hosts[name].units() {
		v.Layer.Remove(u.Res.Type, u.Res.Name)
	}
	for _, ref := range v.hides[name] {
		v.Layer.Remove(ref.Type, ref.Name)
	}
	delete(v.hides, name)
	if version == nil {
		return
	}
	if all, other := version.units(), base.units(); slices.EqualFunc(all, other, sameName) { // as in most versions
		for i, u := range all {
			if u != other[i] && !v.table.layer.Reserved(u.Res) {
				v.Layer.Put(u.Res)
			}
		}
		return
	}
	have, want := base.byRef(), version.byRef()
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

// sameName reports whether two units have resources of one type and name.
func sameName(a, b layer.Unit) bool { return a.Res.Type == b.Res.Type && a.Res.Name == b.Res.Name }

// byRef maps all resources of a host by type and name.
func (h *Host) byRef() map[xds.Ref]layer.Unit {
	all := map[xds.Ref]layer.Unit{}
	for _, u := range h.units() {
		all[xds.Ref{Type: u.Res.Type, Name: u.Res.Name}] = u
	}
	return all
}

// units returns all resources of a host. The list for a nil host is empty.
func (h *Host) units() []layer.Unit {
	if h == nil {
		return nil
	}
	return append(units(h.clusters), h.endpoints...)
}
