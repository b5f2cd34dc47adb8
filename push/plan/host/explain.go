package host

import (
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Explain returns the Spec (the inputs of the build) of the cluster or assignment with the given type and name. It is
// the Spec for the proxies without a Variation. Explain returns nil if the table has no such resource.
func (t *Table) Explain(of xds.Ref) pool.ResourceSpec { return explain(t, of) }

// Explain returns the Spec of the cluster or assignment with the given type and name, for the proxies of the variation.
// It returns nil if there is no such resource, and for xds.LocalCluster (see ExplainOwn).
func (v *Variation) Explain(of xds.Ref) pool.ResourceSpec { return explain(v, of) }

// explain searches the resources of the host whose name is part of the resource's name.
func explain(hosts Hosts, of xds.Ref) pool.ResourceSpec {
	_, _, _, name, _ := xds.ParseCluster(of.Name)
	for _, u := range hosts.Get(name).units() {
		if u.Res.Type == of.Type && u.Res.Name == of.Name {
			return u.Spec
		}
	}
	return nil
}

// Frozen is an immutable snapshot of the hosts of a table, for the function Specs. Any goroutine may read it.
type Frozen struct{ hosts layer.Table[Host] }

// Freeze returns a snapshot of the hosts. It must not be called within a step, that is, between Resolve or Follow and
// EndStep.
func (t *Table) Freeze() Frozen { return Frozen{t.hosts.Fork()} }

// Clusters is the list of clusters of a host, which is immutable. Hosts of several tables may share one list. A host
// whose endpoints change keeps its list.
type Clusters struct{ first *clusterUnit } // of a slice; comparable, unlike the slice

// Specs calls f with the clusters of each host of the tables, in no order. The second argument calls its argument with
// the Spec of each cluster, and with the key of the service that defines the cluster's port. Equal Clusters are visited
// once, and hosts without clusters are left out. Assignments are not visited.
func Specs(tables []Frozen, f func(of Clusters, each func(func(spec pool.ResourceSpec, by model.Key)))) {
	seen := map[Clusters]bool{}
	for _, t := range tables {
		for _, h := range t.hosts.All() {
			if len(h.clusters) == 0 || seen[Clusters{&h.clusters[0]}] {
				continue
			}
			of := Clusters{&h.clusters[0]}
			seen[of] = true
			f(of, func(f func(spec pool.ResourceSpec, by model.Key)) {
				for _, c := range h.clusters {
					f(c.Spec, c.selection.Service.Key)
				}
			})
		}
	}
}

// Describe calls line, a function like fmt.Printf, for each host and each cluster or assignment of the table, in no
// order. Tests compare tables by these lines.
func (t *Table) Describe(line func(format string, args ...any)) {
	for name, h := range t.hosts.All() {
		line("host %s: %p %v %v", name, h.Service, h.joined, h.Rules)
		for _, u := range h.units() {
			line("unit %s: %v %p", name, u.Spec, u.Res)
		}
	}
}
