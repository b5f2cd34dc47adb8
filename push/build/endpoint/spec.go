// Package endpoint draws endpoint assignments: a Spec in, an encoded ClusterLoadAssignment out.
//
// Owns: nothing.  Reads: its Spec and nothing else.  Never: the snapshot, a view, a clock.
package endpoint

import (
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec is all that one ClusterLoadAssignment can depend on.
type Spec struct {
	Cluster string // its name: outbound|port|subset|host
	// Members are the endpoints that the cluster selects (port, subset, readiness), each once.
	Members intern.List[model.Member]
	// Plain are those of them that take no mTLS by PeerAuthentication, whatever their labels say.
	Plain intern.List[model.Member]
	// AllPlain: none says that it takes mTLS, since the cluster does not ask.
	AllPlain bool
	// Horizon is which of them the proxy reaches through gateways.
	Horizon Horizon
	// Balance is how the proxy's place decides among them.
	Balance
}

// Decided is what decides the assignment, in whatever form it goes out.
func (s Spec) Decided() Spec { return s }

// Balance says how the proxy's place decides which endpoints are called first. The zero Balance: it does not. Comparable.
// Rules: https://istio.io/latest/docs/reference/config/networking/destination-rule/#LocalityLoadBalancerSetting.
type Balance struct {
	// Localities is the setting that holds for the cluster.
	Localities traffic.Localities
	// Locality is the proxy's region/zone/sub-zone; empty: not known.
	Locality string
	// Labels are the proxy's, of the keys that failoverPriority names, as "key=value".
	Labels intern.List[string]
}

// Proxyless is an assignment as gRPC's own xDS client takes it: each locality has a name, if an empty one, and addresses are IPs
// (gRFC A27). Of an endpoint's metadata it reads nothing.
type Proxyless struct{ Spec }
