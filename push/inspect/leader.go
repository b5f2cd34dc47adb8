package inspect

import (
	"net/http"
	"time"
)

// Leader describes the leader of one revision of the control plane, as one candidate sees it. The leader reads the
// sources of the configuration and writes the store.
type Leader struct {
	Name     string `json:"name"`            // name of the leading process; empty: no process leads
	Revision string `json:"revision"`        // revision of the control plane
	Epoch    int64  `json:"epoch,omitempty"` // number of the leader's term
	// Read is the time up to which the records contain the state of the config cluster. It is zero if no cluster is
	// read, or if the cluster's state is not complete yet.
	Read time.Time `json:"read,omitzero"`
	// Self states that the responding process is the leader. Only the leader sets the fields below.
	Self bool `json:"self"`
	// Settled states that the leader has compared all objects with the store, and that no write is pending.
	Settled bool `json:"settled,omitempty"`
	// Writes states that the leader also writes to Kubernetes. Only the leader of the promoted revision does so.
	Writes bool `json:"writes,omitempty"`
}

// leader serves /debug/leader. A process that is not a candidate responds with an empty object.
func leader(c Config, r *http.Request) (any, error) {
	if c.Leader == nil {
		return struct{}{}, nil
	}
	return c.Leader(r.Context())
}
