package inspect

import (
	"net/http"
	"time"
)

// Leader describes the leader of the ingesters of one revision, as one of the candidates sees it.
type Leader struct {
	Name     string `json:"name"`            // name of the leading process; empty: no process leads
	Revision string `json:"revision"`        // revision of the control plane
	Epoch    int64  `json:"epoch,omitempty"` // epoch of the leader's term
	// Read is the time up to which the records contain the state of the config cluster. It is zero if the process reads
	// no cluster, or if the cluster's state is not complete yet.
	Read time.Time `json:"read,omitzero"`
	// Self states that the responding process is the leader. Only the leader sets the fields below.
	Self bool `json:"self"`
	// Settled states that the leader has compared all objects with the store and has no pending write.
	Settled bool `json:"settled,omitempty"`
	// Writes states that the leader writes to Kubernetes, because its revision is the promoted one.
	Writes bool `json:"writes,omitempty"`
}

// leader serves /debug/leader. A process that is not a candidate responds with an empty object.
func leader(c Config, r *http.Request) (any, error) {
	if c.Leader == nil {
		return struct{}{}, nil
	}
	return c.Leader(r.Context())
}
