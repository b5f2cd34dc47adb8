package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// confirmWithin bounds how long a proxy that joins waits for this replica to catch up with what another may have told it.
const confirmWithin = 5 * time.Second

// planner is what the xDS server asks: it turns a client into a view, once this replica is sure not to be behind.
type planner struct {
	loop   *plan.Loop
	mirror *mirror.Mirror
	// clients are log lines that clients bring about.
	clients *obs.Sampled
	// checked: the authenticated identity must be the one that the node claims (PILOT_ENABLE_XDS_IDENTITY_CHECK).
	checked     bool
	trustDomain string // of identities that may have Secrets of their namespace
	fleet       *fleet
	scopes      *scopes
}

// served is a proxy of this replica: its plan, counted as one of its streams.
type served struct {
	*plan.Proxy
	leave    func()
	fresh    func(context.Context) error     // waits until this replica's snapshot is the newest
	notified atomic.Pointer[place.Placement] // by which its agent is told of its owner; nil: it has not asked
}

var _ serve.SecretSubscriber = (*served)(nil)

// Confirm implements serve.View.
func (s *served) Confirm(ctx context.Context) error {
	confirm, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if err := s.fresh(confirm); err != nil {
		return status.Errorf(codes.Unavailable, "this replica may be behind the one that the proxy comes from: %v", err)
	}
	if err := s.Refresh(confirm); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// Leave implements serve.View.
func (s *served) Leave() {
	s.Proxy.Leave()
	s.leave()
}

// Join implements serve.Planner.
func (p planner) Join(ctx context.Context, c serve.Client, moved func(fanout.Lane)) (serve.View, error) {
	node, err := view.Parse(c.Node, p.scopes.cluster)
	if err != nil {
		return nil, err
	}
	if err := p.check(c.Identity, node); err != nil {
		return nil, err
	}
	if node.Verified, err = verified(c.Identity, p.trustDomain); err != nil {
		p.clients.Warn("a proxy may have no Secrets", "identity", obs.KeyNode, node.ID, obs.KeyPeer, c.Addr, obs.KeyIdentity, c.Identity, obs.KeyError, err)
	}
	node.Pod = c.Pod
	if err := errors.Join(p.mirror.Ready(), p.fleet.member.Above()); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err := p.scopes.settle(c, &node); err != nil {
		return nil, err
	}
	if err := p.fleet.admit(ctx, c, node); err != nil {
		return nil, err
	}
	confirm, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if err := p.mirror.ConfirmAt(confirm, seen(c.MinRevision)); errors.Is(err, mirror.ErrBehind) {
		return nil, &serve.BehindError{Revision: p.mirror.Current().Revision(), Err: err}
	} else if err != nil {
		return nil, status.Errorf(codes.Unavailable, "this replica lags behind: %v", err)
	}
	if u, covered := p.mirror.Current().Covered(node.Namespace); covered { // another replica may know it
		return nil, status.Errorf(codes.Unavailable, "this replica lets in no proxy of namespace %q: %v", node.Namespace, u)
	}
	proxy, err := p.loop.Join(ctx, node, func(path plan.Path) {
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
		return nil, status.FromContextError(err).Err()
	}
	return &served{Proxy: proxy, leave: p.fleet.streams.Join(node.Namespace, node.Workload), fresh: p.mirror.ConfirmNow}, nil
}

// storeName is how a store is named to clients; empty while it is not known.
func storeName(m *mirror.Mirror) string {
	if cluster := m.Status().Seen.Cluster; cluster != 0 {
		return strconv.FormatUint(cluster, 16)
	}
	return ""
}

// placeName is where the newest state that was read stands; empty: that is not known.
func placeName(m *mirror.Mirror) string {
	if s := m.Current(); s != nil && s.Place().Known() {
		return s.Place().String()
	}
	return ""
}

// seen is what a client says that it has seen, in the store's terms. A store whose name is none of ours is another one.
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

// check compares who the caller is with who its node says it is. On plain text nobody is anybody.
func (p planner) check(identity string, node view.Node) error {
	if identity == "" || !p.checked {
		return nil
	}
	id, err := spiffeid.FromString(identity)
	if err != nil {
		return status.Errorf(codes.PermissionDenied, "identity %q is no SPIFFE ID", identity)
	}
	namespace, account, err := attest.ParsePath(id)
	if err != nil {
		return status.Errorf(codes.PermissionDenied, "identity %q: %v", identity, err)
	}
	if namespace != node.Namespace || node.Account != "" && account != node.Account {
		return status.Errorf(codes.PermissionDenied, "%s may not ask for a proxy of namespace %q, service account %q", identity, node.Namespace, node.Account)
	}
	return nil
}
