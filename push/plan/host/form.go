package host

import (
	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
)

// Form is what a kind of client takes of the clusters and assignments that a table decides. Its front chooses it.
type Form struct {
	Cluster    func(cluster.Outbound) pool.ResourceSpec
	Assignment func(endpoint.Spec) pool.ResourceSpec
	// Whole: a client speaks mTLS to all endpoints of a cluster or to none (see demand). Else each endpoint says what it takes.
	Whole bool
	// Endpoints: a client is always given the endpoints of a service whose address it could choose itself, since it connects to no other address.
	Endpoints bool
}

// discovery is how a client finds the endpoints of a service.
func (f Form) discovery(svc *model.Service, policy traffic.Policy) traffic.Discovery {
	if f.Endpoints {
		return traffic.DiscoveryByResolution(svc)
	}
	return traffic.DiscoveryOf(svc, policy)
}

// Form is that of the table's clusters and assignments.
func (t *Table) Form() Form { return t.form }

// Envoy is the form of Envoys.
var Envoy = Form{
	Cluster:    func(s cluster.Outbound) pool.ResourceSpec { return s },
	Assignment: func(s endpoint.Spec) pool.ResourceSpec { return s },
}
