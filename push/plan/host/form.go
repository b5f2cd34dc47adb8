package host

import (
	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/pool"
)

// Form is what a kind of client takes of the clusters and assignments that a table decides. Its front chooses it.
type Form struct {
	Cluster    func(cluster.Outbound) pool.ResourceSpec
	Assignment func(endpoint.Spec) pool.ResourceSpec
	// Whole: a client speaks mTLS to all endpoints of a cluster or to none (see demand). Else each endpoint says what it takes.
	Whole bool
}

// Form is that of the table's clusters and assignments.
func (t *Table) Form() Form { return t.form }

// Envoy is the form of Envoys.
var Envoy = Form{
	Cluster:    func(s cluster.Outbound) pool.ResourceSpec { return s },
	Assignment: func(s endpoint.Spec) pool.ResourceSpec { return s },
}
