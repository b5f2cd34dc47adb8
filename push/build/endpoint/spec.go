// Package endpoint draws endpoint assignments: a Spec in, an encoded ClusterLoadAssignment out.
//
// Owns: nothing.  Reads: its Spec and nothing else.  Never: the snapshot, a view, a clock.
package endpoint

import (
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
}
