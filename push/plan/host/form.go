package host

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
)

// Form contains the properties of one kind of client (sidecars, gateways, gRPC clients) on which a host table depends.
// The package that plans listeners and routes for that kind of client defines its Form.
type Form struct {
	// Gateways are the gateways whose VirtualServices apply: virtualservice.Mesh for the mesh itself, or namespace/name
	// of Gateways.
	Gateways []string
	// Side is the EnvoyFilter context that matches the clusters.
	Side networkingv1.EnvoyFilter_PatchContext
	// Cluster and Assignment convert the Spec of a cluster or assignment for an Envoy to the Spec for this kind of
	// client. They must return equal results for equal arguments.
	Cluster    func(cluster.Outbound) pool.ResourceSpec
	Assignment func(endpoint.Spec) pool.PiecewiseSpec
	// Whole is true for gRPC clients, which use mTLS either for all endpoints of a cluster or for none (see demand).
	// For Envoys each endpoint states whether it accepts mTLS.
	Whole bool
	// BySNI is true for gateways that forward mTLS of their clients by SNI. For such gateways, most clusters of
	// services inside the mesh have a counterpart, which forwards connections without terminating mTLS
	// (Table.PassedBySNI).
	BySNI bool
	// Endpoints is true if a client can only connect to endpoints that it has received. If Endpoints is true, an Envoy
	// also gets the endpoints of services with resolution NONE.
	Endpoints bool
	// Guarded is true if endpoints that lead to the client's own Pod or Node are left out (destinations.go).
	Guarded bool
}

// discovery returns the type of discovery by which a client finds the endpoints of a service.
func (f Form) discovery(svc *model.Service, policy traffic.Policy) traffic.Discovery {
	if f.Endpoints {
		by := traffic.DiscoveryByResolution(svc)
		if by == traffic.OriginalDst && !f.Whole {
			return traffic.EDS
		}
		return by
	}
	return traffic.DiscoveryOf(svc, policy)
}

// Form returns the Form that was passed to New.
func (t *Table) Form() Form { return t.form }

// Envoy returns the Form for Envoys, with the given EnvoyFilter context and gateways (see Form.Gateways). Whole, BySNI,
// Endpoints and Guarded are false. With context GATEWAY, the clusters of ports without a protocol use HTTP/1.1,
// whatever protocol the client uses (istio: pilot/pkg/networking/core/cluster.go, buildOutboundClusters).
func Envoy(side networkingv1.EnvoyFilter_PatchContext, gateways ...string) Form {
	return Form{
		Gateways: gateways,
		Side:     side,
		Cluster: func(s cluster.Outbound) pool.ResourceSpec {
			s.Plainly = side == networkingv1.EnvoyFilter_GATEWAY
			return s
		},
		Assignment: func(s endpoint.Spec) pool.PiecewiseSpec { return s },
	}
}
