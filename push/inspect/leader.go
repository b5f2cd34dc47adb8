package inspect

import (
	"net/http"
	"time"
)

// Leader describes the election among the ingesters of one revision, as one of its candidates sees it.
type Leader struct {
	Name     string `json:"name"`            // of the process that leads; empty: no process leads
	Revision string `json:"revision"`        // of the control plane
	Epoch    int64  `json:"epoch,omitempty"` // of its term
	// Read is the time up to which the records contain the state of the config cluster. It is zero if no cluster is read,
	// or its state is not complete yet.
	Read time.Time `json:"read,omitzero"`
	// Self reports whether the process that responds is the leader. The fields below are known to the leader alone.
	Self bool `json:"self"`
	// Settled reports whether the leader has compared all objects with the store and has no pending write.
	Settled bool `json:"settled,omitempty"`
	// Writes reports whether the leader writes to Kubernetes, because its revision is the promoted one.
	Writes bool `json:"writes,omitempty"`
}

// leader serves /debug/leader. A process that is not a candidate responds with an empty object.
func leader(c Config, r *http.Request) (any, error) {
	if c.Leader == nil {
		return struct{}{}, nil
	}
	return c.Leader(r.Context())
}
