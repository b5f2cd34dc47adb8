package host

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
)

// Form has the decisions of a front for its kind of client: which rules and patches are for it, and which clusters and
// assignments it understands.
type Form struct {
	Gateways   []string                              // gateways of the clients' VirtualServices: virtualservice.Mesh, or namespace/name of Gateways
	Side       networkingv1.EnvoyFilter_PatchContext // the side of the proxy in EnvoyFilters
	Cluster    func(cluster.Outbound) pool.ResourceSpec
	Assignment func(endpoint.Spec) pool.ResourceSpec
	// Whole: a client speaks mTLS to all endpoints of a cluster or to none of them (see demand). Otherwise each endpoint
	// states whether it accepts mTLS.
	Whole bool
	// Endpoints: a client always gets the endpoints of a service, even if it could choose an address itself, because it
	// connects to no other address.
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

// Envoy is the form of Envoys, on one side and for these gateways.
func Envoy(side networkingv1.EnvoyFilter_PatchContext, gateways ...string) Form {
	return Form{
		Gateways:   gateways,
		Side:       side,
		Cluster:    func(s cluster.Outbound) pool.ResourceSpec { return s },
		Assignment: func(s endpoint.Spec) pool.ResourceSpec { return s },
	}
}
