// Package endpoint builds endpoint assignments: a Spec in, an encoded ClusterLoadAssignment out.
//
// Owns: nothing.  Reads: its Spec and nothing else.  Never: the snapshot, a view, a clock.
package endpoint

import (
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec is the input of one ClusterLoadAssignment.
type Spec struct {
	Cluster string // its name: outbound|port|subset|host
	// Members are the endpoints that the cluster selects (port, subset, readiness), each once.
	Members intern.List[model.Member]
	// Plain are the Members that do not accept mTLS because of a PeerAuthentication, whatever their labels state.
	Plain intern.List[model.Member]
	// AllPlain states that no member is marked as accepting mTLS, because the cluster does not read the mark.
	AllPlain bool
	// Horizon selects the Members that the proxy reaches through gateways.
	Horizon Horizon
	// Balance holds the settings of balancing by locality.
	Balance
}

// Decision returns the Spec itself, also for a Spec that is embedded in another form of the assignment.
func (s Spec) Decision() Spec { return s }

// Balance holds the settings and the inputs of the proxy that decide the priorities and weights of localities. With the
// zero Balance all localities are equal. It is comparable. Rules:
// https://istio.io/latest/docs/reference/config/networking/destination-rule/#LocalityLoadBalancerSetting.
type Balance struct {
	// Localities is the setting that applies to the cluster.
	Localities traffic.Localities
	// Locality is the proxy's region/zone/sub-zone; empty: unknown.
	Locality string
	// Labels are the proxy's labels with keys of failoverPriority, as "key=value".
	Labels intern.List[string]
}

// Proxyless is the input of an assignment for gRPC's own xDS client (gRFC A27). Each locality has a name, which may be
// empty. Addresses are IPs. Endpoints have no metadata, which the client ignores.
type Proxyless struct{ Spec }
