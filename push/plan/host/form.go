package host

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
)

// Form contains the decisions of a front for its kind of client: which rules and patches apply to it, and which
// clusters and assignments it understands.
type Form struct {
	// Gateways are the gateways whose VirtualServices apply: virtualservice.Mesh, or namespace/name of Gateways.
	Gateways []string
	// Side is the context of the clusters in EnvoyFilters.
	Side networkingv1.EnvoyFilter_PatchContext
	// Cluster and Assignment convert the Spec for an Envoy to the Spec for this kind of client.
	Cluster    func(cluster.Outbound) pool.ResourceSpec
	Assignment func(endpoint.Spec) pool.ResourceSpec
	// Whole means that a client uses mTLS either for all endpoints of a cluster or for none (see demand). Otherwise each
	// endpoint states whether it accepts mTLS.
	Whole bool
	// BySNI: clients pass mTLS of others on by SNI. Each cluster of a service of the mesh has a twin for that.
	BySNI bool
	// Endpoints means that a client always gets the endpoints of a service, even of a service whose clients choose an
	// address themselves, because it connects to no other address.
	Endpoints bool
	// Guarded: clients have no endpoints that lead to their own Pod or Node (destinations.go).
	Guarded bool
}

// discovery returns the way in which a client finds the endpoints of a service.
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

// Form returns the form of the table's clusters and assignments.
func (t *Table) Form() Form { return t.form }

// Envoy returns the Form for Envoys, with the given EnvoyFilter context and gateways. Gateways speak HTTP/1.1 to ports
// without a protocol, whatever their own clients speak (istio: pilot/pkg/networking/core/cluster.go,
// buildOutboundClusters).
func Envoy(side networkingv1.EnvoyFilter_PatchContext, gateways ...string) Form {
	return Form{
		Gateways: gateways,
		Side:     side,
		Cluster: func(s cluster.Outbound) pool.ResourceSpec {
			s.Plainly = side == networkingv1.EnvoyFilter_GATEWAY
			return s
		},
		Assignment: func(s endpoint.Spec) pool.ResourceSpec { return s },
	}
}
