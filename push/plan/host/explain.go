package host

import (
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Explain is the Spec of a cluster or an assignment by its name; nil: the table has none.
func (t *Table) Explain(of xds.Ref) pool.ResourceSpec { return explain(t, of) }

// Explain is Table.Explain.
func (v *Variation) Explain(of xds.Ref) pool.ResourceSpec { return explain(v, of) }

func explain(hosts Hosts, of xds.Ref) pool.ResourceSpec {
	_, _, _, name, _ := xds.ParseCluster(of.Name)
	for _, u := range hosts.Get(name).units() {
		if u.Res.Type == of.Type && u.Res.Name == of.Name {
			return u.Spec
		}
	}
	return nil
}

// Frozen is the hosts of a table at one moment. It never changes: any goroutine may read it.
type Frozen struct{ hosts layer.Table[Host] }

// Freeze takes the hosts as they are. Between steps only.
func (t *Table) Freeze() Frozen { return Frozen{t.hosts.Fork()} }

// Specs calls f with the Spec of each cluster of the tables, and the object that made it; hosts that tables share are looked at once.
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

// Describe writes down all that the table has decided, a line each, published or not, in no order. Tests compare tables by it.
func (t *Table) Describe(line func(format string, args ...any)) {
	for name, h := range t.hosts.All() {
		line("host %s: %p %v %v", name, h.Service, h.joined, h.Rules)
		for _, u := range h.units() {
			line("unit %s: %v %p", name, u.Spec, u.Res)
		}
	}
}
