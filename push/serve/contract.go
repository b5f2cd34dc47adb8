package serve

import (
	"context"
	"errors"
	"strconv"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
)

// ErrNotReady is the error of Planner.Join while the replica's snapshot is not complete. An error that wraps
// ErrNotReady has the same effect. The stream ends with Unavailable, and the proxy tries again.
var ErrNotReady = errors.New("the snapshot is not complete yet")

// BehindError is the error of Planner.Join for a client that has seen a newer revision than this replica has. An error
// that wraps a *BehindError has the same effect. The stream ends with Unavailable. A trailer states the replica's
// revision, so that the client can choose another replica.
type BehindError struct {
	Revision int64 // the store's revision that this replica has
	Err      error // reason why the replica has no newer revision; not nil
}

// Error returns a message with the revision and the reason.
func (e *BehindError) Error() string {
	return "this replica lags behind, at revision " + strconv.FormatInt(e.Revision, 10) + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *BehindError) Unwrap() error { return e.Err }

// Client describes the peer of a stream.
type Client struct {
	ID          string               // node ID in the first request; a tool's stream may have no ID
	Node        []byte               // encoded core.v3.Node of the first request; read-only, valid until Join returns, nil elsewhere
	Identity    string               // SPIFFE ID of the authenticated peer; empty on plain text
	Caller      attest.Caller        // the peer with its credential; zero on plain text
	Addr        string               // the peer's address, host:port
	Envoy       string               // version of the peer's Envoy in its node; empty if not stated
	MinRevision agentapi.MinRevision // the newest state that the peer has seen; zero if not stated
	Secure      bool                 // the connection is TLS
	// Holds is true if the client probably has its resources already. Its first request listed such resources, or was
	// an agent's delta request for an AgentType. To be admitted, an agent sends such a request before it moves its
	// Envoy to this replica. It lists Envoy's resources in later requests.
	Holds bool
}

// Planner plans the configuration of clients. Its methods are called from any goroutine.
type Planner interface {
	// Join plans a client's configuration (its view). It blocks until the view's first set is complete. It also waits
	// until the set is as new as c.MinRevision, but only for a bounded time. It returns early when ctx ends, which ends
	// with the stream. An error of Join ends the stream. ErrNotReady and BehindError become Unavailable. Errors of a
	// context become Canceled or DeadlineExceeded, and an error with a gRPC status is sent unchanged. Any other error
	// is about the node and becomes InvalidArgument with its text.
	//
	// The Planner calls the function moved after every change of Proxy.Set, from any goroutine, possibly before Join
	// has returned or after Leave. This function does not block. Its argument is the lane (the urgency) of the change.
	// It is fanout.Endpoints if only endpoints differ from the previous set, otherwise fanout.Config.
	Join(ctx context.Context, c Client, moved func(fanout.Lane)) (Proxy, error)
}

// Ender is a Proxy whose planning may fail. After a failure its Set stays unchanged, the Planner calls moved, and the
// stream ends with Internal.
type Ender interface {
	// Err returns the reason for the failure, or nil while planning continues. The text of the reason is sent to the
	// client.
	Err() error
}

// Proxy is a planned client. It has the newest set of the client's resources, and the ID and namespace of the client's
// view. The methods are called from any goroutine. Of these methods, only Confirm may block.
type Proxy interface {
	// Set returns the newest set, which is never nil.
	Set() *manifest.Set
	// Namespace returns the proxy's namespace. The fan-out shares its turns fairly between namespaces.
	Namespace() string
	// ID returns the identifier of the view. It is equal for all clients that have the same outbound configuration,
	// and may change with the set. If several of these clients refuse a version of a resource, the version is
	// withheld from all of them (push/quarantine).
	ID() string
	// Confirm waits until Set is as new as the set of any replica at the time of the call. Confirm is called for a
	// client that joined early, while another replica served this client (Client.Holds). The stream ends with the
	// error, by the rules for errors of Join. Confirm must not return a BehindError.
	Confirm(ctx context.Context) error
	// Leave ends the planning for the client. It is called once.
	Leave()
}

// HealthReporter is a Proxy whose client may report the health of its workload (istio.v1.HealthInformation).
type HealthReporter interface {
	// ReportHealth is called for each report of the client. The parameter message is the reason why the workload is
	// unhealthy. It may be as long as a request, and is valid only during the call. The goroutine that reads the stream
	// waits for the call.
	ReportHealth(healthy bool, message string)
}
