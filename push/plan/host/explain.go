package host

import (
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Explain returns the Spec of a cluster or an assignment by its name, or nil if the table has no such resource.
func (t *Table) Explain(of xds.Ref) pool.ResourceSpec { return explain(t, of) }

// Explain returns the Spec of a cluster or an assignment by its name, as proxies of the variation receive it, or nil.
func (v *Variation) Explain(of xds.Ref) pool.ResourceSpec { return explain(v, of) }

// explain searches the units of the host that the resource's name contains.
func explain(hosts Hosts, of xds.Ref) pool.ResourceSpec {
	_, _, _, name, _ := xds.ParseCluster(of.Name)
	for _, u := range hosts.Get(name).units() {
		if u.Res.Type == of.Type && u.Res.Name == of.Name {
			return u.Spec
		}
	}
	return nil
}

// Frozen is an immutable snapshot of the hosts of a table. Any goroutine may read it.
type Frozen struct{ hosts layer.Table[Host] }

// Freeze returns a snapshot of the hosts. It must not be called within a step.
func (t *Table) Freeze() Frozen { return Frozen{t.hosts.Fork()} }

// Specs calls f with the Spec of each cluster of the tables, and with the key of the service that defines the cluster.
// A host that several tables share is visited once.
func Specs(tables []Frozen, f func(spec pool.ResourceSpec, by model.Key)) {
	seen := map[*Host]bool{}
	for _, t := range tables {
		for _, h := range t.hosts.All() {
			if seen[h] {
				continue
			}
			seen[h] = true
			for _, c := range h.clusters {
				f(c.Spec, h.Service.Key)
			}
		}
	}
}

// Describe calls line for each fact that the table has decided, published or not, in no order. Tests compare tables by
// these lines.
func (t *Table) Describe(line func(format string, args ...any)) {
	for name, h := range t.hosts.All() {
		line("host %s: %p %v %v", name, h.Service, h.joined, h.Rules)
		for _, u := range h.units() {
			line("unit %s: %v %p", name, u.Spec, u.Res)
		}
	}
}
