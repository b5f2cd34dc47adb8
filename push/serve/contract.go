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

// ErrNotReady is returned (wrapped or not) by a Planner whose snapshot is not complete. The stream ends with
// Unavailable, and the proxy tries again.
var ErrNotReady = errors.New("the snapshot is not complete yet")

// BehindError is returned (wrapped or not) by a Planner to a client that has seen a newer revision than this replica
// has. The stream ends with Unavailable. A trailer names the replica's revision, so that the client connects to another
// replica.
type BehindError struct {
	Revision int64 // of this replica
	Err      error // why the replica is not newer
}

func (e *BehindError) Error() string {
	return "this replica lags behind, at revision " + strconv.FormatInt(e.Revision, 10) + ": " + e.Err.Error()
}

func (e *BehindError) Unwrap() error { return e.Err }

// Client describes the peer of a stream.
type Client struct {
	ID          string               // of the first request's node
	Node        []byte               // that node, an encoded core.v3.Node; owned by the server and valid only until Join returns
	Identity    string               // the authenticated peer (a SPIFFE ID); empty on plain text
	Caller      attest.Caller        // the peer with its credential; zero on plain text
	Addr        string               // the peer's address
	Envoy       string               // version of its Envoy; empty if not stated
	MinRevision agentapi.MinRevision // the newest state that it has seen
	Secure      bool                 // the connection is TLS
	// Holds means that the join is cheap: the first request listed held resources, or was an agent's for an agent
	// resource. Such an agent requests its admission before it moves its Envoy, and lists Envoy's resources afterwards.
	Holds bool
}

// Planner is the part of the plan loop that serve needs.
//
// Join plans a view for a client and blocks until the view's first set is complete, or ctx ends (it ends with the
// stream). Within bounds it waits until the set is as new as c.MinRevision. Errors: ErrNotReady and BehindError become
// Unavailable; one that carries a gRPC status is sent unchanged; any other describes a fault of the node, and becomes
// InvalidArgument with its text.
//
// moved is called after every change of Proxy.Set, from any goroutine, possibly before Join has returned and after
// Leave. It does not block (plan.Loop.Join). Its argument is the lane: Endpoints if only endpoints differ from the
// previous set.
type Planner interface {
	Join(ctx context.Context, c Client, moved func(fanout.Lane)) (Proxy, error)
}

// Ender is a Proxy that may end by itself. Its Set then stays unchanged, moved is called, and the stream ends with
// Internal.
type Ender interface {
	// Err returns the reason for the end, for the client; nil while the proxy has not ended.
	Err() error
}

// Proxy is a planned client: the newest set of its view, with its identification. Its methods are called from any
// goroutine. Only Confirm may block.
type Proxy interface {
	// Set returns the newest set; never nil.
	Set() *manifest.Set
	// Namespace returns the owner for fairness in the fan-out.
	Namespace() string
	// ID is equal for all clients with the same resources at the scope. A version that several of them refuse is withheld
	// from all (push/quarantine). It may change with the set.
	ID() string
	// Confirm waits until Set is as new as that of any replica at the time of the call. It is for a client that was
	// admitted early, and was served by another replica until now. Errors are those of Join.
	Confirm(ctx context.Context) error
	// Leave ends the proxy. It is called once.
	Leave()
}

// HealthReporter is a Proxy whose client may report the health of its workload (istio.v1.HealthInformation). The
// goroutine that reads the stream waits for the call. message, which may be as long as a request, is valid only during
// the call.
type HealthReporter interface {
	ReportHealth(healthy bool, message string)
}
