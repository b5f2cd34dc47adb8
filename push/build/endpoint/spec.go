// Package endpoint encodes Specs as endpoint assignments (ClusterLoadAssignment). A Spec is a comparable struct with
// all inputs of one assignment.
//
// Owns: nothing. Reads: its Spec and nothing else. Never: reads the stored configuration, the state of a proxy, or a
// clock.
package endpoint

import (
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec is the input of one ClusterLoadAssignment.
type Spec struct {
	Cluster string // name of the assignment: outbound|port|subset|host
	// Members are the endpoints that the cluster selects (port, subset, readiness), each once.
	Members intern.List[model.Member]
	// Plain are the Members that accept no mTLS because of a PeerAuthentication, whatever their labels state.
	Plain intern.List[model.Member]
	// AllPlain treats all Members as Plain. It is for clusters that do not read the metadata that marks mTLS.
	AllPlain bool
	// Horizon selects the Members of other networks, which the proxy reaches through gateways.
	Horizon Horizon
	// Balance holds the settings of balancing by locality.
	Balance
}

// Decision returns s. For a type that embeds a Spec, such as Proxyless, it returns the embedded Spec.
func (s Spec) Decision() Spec { return s }

// Balance holds the inputs that decide the priorities and weights of localities, by the rules of
// https://istio.io/latest/docs/reference/config/networking/destination-rule/#LocalityLoadBalancerSetting. With the zero
// Balance all localities are equal. Balance is comparable.
type Balance struct {
	// Localities holds the settings that apply to the cluster.
	Localities traffic.Localities
	// Locality is the proxy's region/zone/sub-zone; empty: unknown.
	Locality string
	// Labels are the proxy's labels whose keys failoverPriority names, as "key=value". A key that is missing in Labels
	// has the value "".
	Labels intern.List[string]
}

// Proxyless is the input of an assignment for gRPC's own xDS client (gRFC A27). The client requires a Locality message
// for each group of endpoints and supports only IP addresses. It ignores metadata of endpoints, so the assignment
// contains no metadata.
type Proxyless struct{ Spec }
