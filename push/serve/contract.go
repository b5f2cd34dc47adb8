// Package serve is the xDS server: gRPC streams over the delta state machine, sent to by the fan-out.
//
// Owns: the streams and the goroutines that read and write them.  Reads: views, through Planner.  Never: the snapshot,
// a builder; it copies no bytes of a resource.
package serve

import (
	"context"
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// ErrNotReady is what a Planner answers (wrapped or not) while its snapshot is not complete: the stream ends with
// Unavailable, and the proxy tries again.
var ErrNotReady = errors.New("the snapshot is not complete yet")

// Client is who has opened a stream.
type Client struct {
	Node     *corev3.Node // the first request's, without its extensions; never changed afterwards
	Caps     xds.Caps     // of the node's extensions; xds.StockCaps where it lists none
	Identity string       // the authenticated peer (a SPIFFE ID); empty on plain text
	Addr     string       // the peer's address
}

// Planner is what serve needs of the plan loop.
//
// Join plans a view for a client and blocks until the view's first set is complete, or ctx ends (it ends with the
// stream). Errors: ErrNotReady becomes Unavailable; one that carries a gRPC status goes out as it is; any other says
// what is wrong with the node, and becomes InvalidArgument with its text.
//
// moved is called after every change of View.Set, from any goroutine, also before Join has returned; it never blocks
// and may be called after Leave. It says by which lane: Endpoints where only endpoints differ from the set before.
type Planner interface {
	Join(ctx context.Context, c Client, moved func(fanout.Lane)) (View, error)
}

// View is one client's view. Its methods are called from any goroutine and never block.
type View interface {
	// Set is the newest set; never nil.
	Set() *manifest.Set
	// Namespace is what the fan-out is fair between.
	Namespace() string
	// ID is equal for all clients that have the same resources at the scope: refusals of several of them become a
	// verdict for all.
	ID() string
	// Leave ends it, once.
	Leave()
}
