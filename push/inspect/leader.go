package inspect

import (
	"net/http"
	"time"
)

// Leader describes the election of the ingesters of one revision, as one of its candidates sees it.
type Leader struct {
	Name     string `json:"name"`            // of the process that leads; empty: none leads
	Revision string `json:"revision"`        // of the control plane
	Epoch    int64  `json:"epoch,omitempty"` // of its term
	// Read is the time up to which the records have what the config cluster had; zero: no cluster is read, or not yet.
	Read time.Time `json:"read,omitzero"`
	// Self: the process that answers leads. What follows is known of that process alone.
	Self bool `json:"self"`
	// Settled: the leader has compared everything with the store, and no write waits.
	Settled bool `json:"settled,omitempty"`
	// Writes: the leader writes to Kubernetes, because its revision is the promoted one.
	Writes bool `json:"writes,omitempty"`
}

// leader is the page of Config.Leader. A process that does not stand for election answers with an empty object.
func leader(c Config, r *http.Request) (any, error) {
	if c.Leader == nil {
		return struct{}{}, nil
	}
	return c.Leader(r.Context())
}
