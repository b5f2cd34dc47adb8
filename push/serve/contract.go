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

// ErrNotReady is what a Planner answers (wrapped or not) while its snapshot is not complete: the stream ends with
// Unavailable, and the proxy tries again.
var ErrNotReady = errors.New("the snapshot is not complete yet")

// BehindError is what a Planner answers (wrapped or not) to a client that has seen more than this replica can show: the
// stream ends with Unavailable, and a trailer says how far the replica is, so that the client looks for another.
type BehindError struct {
	Revision int64 // that it has
	Err      error // why it has no more
}

func (e *BehindError) Error() string {
	return "this replica lags behind, at revision " + strconv.FormatInt(e.Revision, 10) + ": " + e.Err.Error()
}

func (e *BehindError) Unwrap() error { return e.Err }

// Client is who has opened a stream.
type Client struct {
	ID          string               // of the first request's node
	Node        []byte               // that node, an encoded core.v3.Node: the server's, and there only until Join has returned
	Identity    string               // the authenticated peer (a SPIFFE ID); empty on plain text
	Caller      attest.Caller        // the same, and what it has shown; zero on plain text
	Addr        string               // the peer's address
	Envoy       string               // version of its Envoy; empty: it does not say
	MinRevision agentapi.MinRevision // what it has seen before
	Secure      bool                 // the connection is TLS
	// Holds says that its first request said what it has, or was an agent's for an agent resource: which asks to be let in before it
	// moves its Envoy, and says then what that has. A join that is cheap.
	Holds bool
}

// Planner is what serve needs of the plan loop.
//
// Join plans a view for a client and blocks until the view's first set is complete, or ctx ends (it ends with the
// stream). It waits, within bounds, until the set is as new as c.MinRevision. Errors: ErrNotReady and BehindError become
// Unavailable; one that carries a gRPC status goes out as it is; any other says what is wrong with the node, and becomes InvalidArgument
// with its text.
//
// moved is called after every change of Proxy.Set, from any goroutine, also before Join has returned, and may be called
// after Leave; it does not block (plan.Loop.Join). It says by which lane: Endpoints where only endpoints differ from the set before.
type Planner interface {
	Join(ctx context.Context, c Client, moved func(fanout.Lane)) (Proxy, error)
}

// Ender is a Proxy that may come to an end by itself: its Set stays as it is. moved is called then, and the stream ends with Internal.
type Ender interface {
	// Err says why it has ended, for the client; nil: it has not.
	Err() error
}

// Proxy is a client as it is planned: the newest set of its view, and by what it is known. Its methods are called from any
// goroutine and, but for Confirm, never block.
type Proxy interface {
	// Set is the newest set; never nil.
	Set() *manifest.Set
	// Namespace is what the fan-out is fair between.
	Namespace() string
	// ID is equal for all clients that have the same resources at the scope: what several of them refuse is withheld from
	// all (push/quarantine). It may change with the set.
	ID() string
	// Confirm waits until Set is as new as any that any replica had when it was called: for a client that was let in early,
	// and was served by another replica until now. Errors are as Join's.
	Confirm(ctx context.Context) error
	// Leave ends it, once.
	Leave()
}

// HealthReporter is a Proxy whose client may report the health of its workload (istio.v1.HealthInformation). The goroutine that reads the stream waits for
// it. The message, which may be as long as a request, is the request's: whoever keeps some of it copies that.
type HealthReporter interface {
	ReportHealth(healthy bool, message string)
}
