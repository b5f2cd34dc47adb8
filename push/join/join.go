// Package join admits proxies. It checks that the client's identity permits the proxy that the node claims to be. It
// checks that the cluster, DNS domain and network in the node exist, and that this replica's state is new enough for
// the client. The fleet (all replicas) may delay or refuse the client, and a machine may be registered. Last, the
// client's view is planned: the configuration that all proxies with equal inputs share.
//
// Owns: the order of these steps, and the views until Proxy.Leave.
// Reads: the authenticated identity, the node, the snapshot (the newest stored records).
// Never: grants rights because of a node's statements; plans a view for a network or domain that the configuration does
// not have.
package join

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/machines"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/obs"
)

// confirmWithin is the maximum time for which a joining proxy waits until this replica has the state of other replicas.
const confirmWithin = 5 * time.Second

// Plans plans views for joining proxies; plan.Loop implements it.
type Plans interface {
	// Join plans the view of a node until plan.Proxy.Leave. It blocks until the view's first set of resources is
	// planned. The function moved is called after each change of the view, possibly before Join returns, and must not
	// block. Errors: plan.ErrNotReady, plan.ErrUnplannable, crash.ErrPanic, the error of ctx, or the end of the loop.
	Join(ctx context.Context, node view.Node, moved func(plan.Path)) (*plan.Proxy, error)
}

// Mirror provides the newest snapshot to joins; mirror.Mirror implements it.
type Mirror interface {
	// Ready returns an error while no complete snapshot is published, or while a stored value does not decode.
	Ready() error
	// ConfirmAt waits until the snapshot is at least as new as the state that a client has seen. If ctx ends first, it
	// returns an error. The error wraps mirror.ErrBehind if the store cannot provide that state.
	ConfirmAt(ctx context.Context, seen mirror.Seen) error
	// ConfirmNow waits until the snapshot is as new as the store at the time of the call. It returns an error if ctx
	// ends first, or if the store does not answer.
	ConfirmNow(ctx context.Context) error
	// Current returns the newest snapshot. After Ready has returned nil, it is not nil.
	Current() *mirror.Snapshot
}

// Fleet admits joining proxies, and counts their streams.
type Fleet interface {
	// Above returns an error if the stored data have a level (format version) that this replica does not support.
	Above() error
	// Admit waits until the client may join. Errors are gRPC statuses.
	Admit(ctx context.Context, c serve.Client, node view.Node) error
	// Join counts a stream of a workload until Seat.Leave.
	Join(namespace, workload string) Seat
}

// Seat is one stream that the fleet counts. Leave ends the counting of this stream, and must be called once.
type Seat interface{ Leave() }

// Planner implements serve.Planner. Plans, Mirror, Fleet, Scopes and Clients must be set. It is safe for concurrent
// use.
type Planner struct {
	Plans  Plans   // plans views
	Mirror Mirror  // the snapshots
	Fleet  Fleet   // admits joins and counts streams
	Scopes *Scopes // checks the names of nodes
	// Machines registers machines whose node requests it; nil: registration is off.
	Machines *machines.Registry
	// Clients receives log lines that clients can cause.
	Clients *obs.Sampled
	// Checked requires that the namespace and service account in the node are those of the authenticated identity
	// (PILOT_ENABLE_XDS_IDENTITY_CHECK).
	Checked     bool
	TrustDomain string              // only identities of this trust domain may receive Secrets or register machines
	Routers     view.RouterSettings // settings of gateways
}

var _ serve.Planner = Planner{}

// Proxy is a joined proxy: its view, its seat in the fleet, and the registration of its machine. Planner.Join creates
// it. It implements serve.Proxy, and is safe for concurrent use.
type Proxy struct {
	*plan.Proxy
	Seat    Seat                        // ended by Leave
	fresh   func(context.Context) error // waits until this replica's snapshot is the newest
	machine *machines.Connection        // nil: the proxy is not a registered machine
}

var (
	_ serve.SecretSubscriber = (*Proxy)(nil)
	_ serve.HealthReporter   = (*Proxy)(nil)
)

// ReportHealth implements serve.HealthReporter. It stores the health of a registered machine, and has no effect for
// other proxies. message is the reason why the machine is unhealthy.
func (p *Proxy) ReportHealth(healthy bool, message string) {
	if p.machine != nil {
		p.machine.Health(healthy, message)
	}
}

// Confirm implements serve.Proxy. It waits until the proxy's resources are planned with all changes that the store has
// at the time of the call. It waits for five seconds at most. Errors are gRPC statuses. The status is Unavailable if
// the snapshot does not become new enough in time, if the store does not answer, or if the plan loop fails. The status
// is DeadlineExceeded or Canceled if the time or ctx ends during planning.
func (p *Proxy) Confirm(ctx context.Context) error {
	confirm, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if err := p.fresh(confirm); err != nil {
		return status.Errorf(codes.Unavailable, "this replica may be behind the one that the proxy comes from: %v", err)
	}
	if err := p.Refresh(confirm); err != nil {
		return statusOf(err)
	}
	return nil
}

// Leave implements serve.Proxy. It ends the connection of a registered machine, the use of the view, and the seat in
// the fleet. It is called once.
func (p *Proxy) Leave() {
	p.machine.Leave()
	p.Proxy.Leave()
	p.Seat.Leave()
}

// Join implements serve.Planner. It admits a client and plans its view. It blocks until the view is planned, or ctx
// ends. The function moved is called after each change of the view, possibly before Join returns, and must not block.
// The argument of moved is fanout.Endpoints if only endpoints changed, otherwise fanout.Config. The caller must call
// Leave of the result once. Errors:
//
//   - serve.ErrNotReady: the plan loop has no complete snapshot yet.
//   - *serve.BehindError: this replica's state is older than the client's, and stayed so for five seconds or until ctx
//     ended.
//   - a gRPC status: the client is refused, this replica cannot serve it, no complete snapshot is published, or ctx
//     ends.
//   - any other error: the node does not parse.
func (p Planner) Join(ctx context.Context, c serve.Client, moved func(fanout.Lane)) (serve.Proxy, error) {
	node, err := view.Parse(c.Node, p.Scopes.Cluster)
	if err != nil {
		return nil, err
	}
	if err := p.check(c.Identity, node); err != nil {
		return nil, err
	}
	if node.Verified, err = Verified(c.Identity, p.TrustDomain); err != nil {
		p.Clients.Warn("a proxy may have no Secrets", "identity", obs.KeyNode, node.ID, obs.KeyPeer, c.Addr, obs.KeyIdentity, c.Identity,
			obs.KeyError, err)
	}
	for _, key := range node.Unacted.All() {
		p.Clients.Warn("node metadata that is not acted on: "+fields.Named(fields.Metadata, key).Text, key, obs.KeyNode, node.ID, obs.KeyPeer,
			c.Addr, obs.KeyIdentity, c.Identity)
	}
	node.Pod, node.Peer, node.Routers = c.Caller.Pod, c.Addr, p.Routers
	if err := errors.Join(p.Mirror.Ready(), p.Fleet.Above()); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err := p.Scopes.accept(c, &node); err != nil {
		return nil, err
	}
	if err := p.Fleet.Admit(ctx, c, node); err != nil {
		return nil, err
	}
	confirm, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if err := p.Mirror.ConfirmAt(confirm, seen(c.MinRevision)); errors.Is(err, mirror.ErrBehind) {
		return nil, &serve.BehindError{Revision: p.Mirror.Current().Revision(), Err: err}
	} else if err != nil {
		return nil, status.Errorf(codes.Unavailable, "this replica lags behind: %v", err)
	}
	if u, covered := p.Mirror.Current().Covered(node.Namespace); covered { // a kind of records needs a newer Navarch
		return nil, status.Errorf(codes.Unavailable, "this replica admits no proxies of namespace %q: %v", node.Namespace, u)
	}
	machine, err := p.Machines.Register(node, c.Caller.Credential(), c.Node)
	if err != nil {
		return nil, err
	}
	proxy, err := p.plan(ctx, node, moved)
	if err != nil {
		machine.Leave()
		return nil, err
	}
	return &Proxy{Proxy: proxy, Seat: p.Fleet.Join(node.Namespace, node.Workload), fresh: p.Mirror.ConfirmNow, machine: machine}, nil
}

// plan plans the view. Errors are serve.ErrNotReady and gRPC statuses.
func (p Planner) plan(ctx context.Context, node view.Node, moved func(fanout.Lane)) (*plan.Proxy, error) {
	proxy, err := p.Plans.Join(ctx, node, func(path plan.Path) {
		if path == plan.Fast {
			moved(fanout.Endpoints)
		} else {
			moved(fanout.Config)
		}
	})
	if errors.Is(err, plan.ErrNotReady) {
		return nil, serve.ErrNotReady
	}
	if errors.Is(err, plan.ErrUnplannable) || errors.Is(err, crash.ErrPanic) {
		return nil, status.Error(codes.Internal, plan.ErrUnplannable.Error())
	}
	if err != nil {
		return nil, statusOf(err)
	}
	return proxy, nil
}

// statusOf returns the gRPC status for an error of the plan loop. If a context has ended, the status is Canceled or
// DeadlineExceeded. Any other error means that the loop has ended or has recovered from a panic. Its status is
// Unavailable, which makes the client connect again.
func statusOf(err error) error {
	if of := status.FromContextError(err); of.Code() != codes.Unknown {
		return of.Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// StoreName returns the name of a store for clients: the ID of its etcd cluster in hexadecimal, or "" for 0 (unknown).
func StoreName(cluster uint64) string {
	if cluster == 0 {
		return ""
	}
	return strconv.FormatUint(cluster, 16)
}

// PlaceName returns the position of a snapshot in the sequence of the leaders' writes, in the text form of kv.Place. It
// returns "" for a nil snapshot and for an unknown position.
func PlaceName(s *mirror.Snapshot) string {
	if s == nil || !s.Place().Known() {
		return ""
	}
	return s.Place().String()
}

// seen converts a client's minimum revision to the form of package mirror. If the name of the client's store is
// invalid, the client's revision is ignored.
func seen(f agentapi.MinRevision) mirror.Seen {
	place, err := kv.ParsePlace(f.Place)
	if err != nil {
		place = kv.Place{}
	}
	if f.Store == "" {
		return mirror.Seen{At: kv.Position{Revision: f.Revision}, Place: place}
	}
	cluster, err := strconv.ParseUint(f.Store, 16, 64)
	if err != nil || cluster == 0 {
		return mirror.Seen{Place: place}
	}
	return mirror.Seen{At: kv.Position{Cluster: cluster, Revision: f.Revision}, Place: place}
}
