package host

import (
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Explain is the Spec of a cluster or an assignment by its name; nil: the table has none.
func (t *Table) Explain(of xds.Ref) pool.ResourceSpec {
	_, _, _, name, _ := xds.ParseCluster(of.Name)
	h := t.Get(name)
	if h == nil {
		return nil
	}
	for _, u := range append(units(h.clusters), h.endpoints...) {
		if u.Res.Type == of.Type && u.Res.Name == of.Name {
			return u.Spec
		}
	}
	return nil
}

// Specs calls f with the Spec of each cluster, and the object that made it.
func (t *Table) Specs(f func(spec pool.ResourceSpec, by model.Key)) {
	for _, h := range t.hosts.All() {
		for _, c := range h.clusters {
			f(c.Spec, h.Service.Key)
		}
	}
}

// Describe writes down all that the table has decided, a line each, published or not, in no order. Tests compare tables by it.
func (t *Table) Describe(line func(format string, args ...any)) {
	for name, h := range t.hosts.All() {
		line("host %s: %p %v", name, h.Service, h.Rules)
		for _, u := range append(units(h.clusters), h.endpoints...) {
			line("unit %s: %v %p", name, u.Spec, u.Res)
		}
	}
}
