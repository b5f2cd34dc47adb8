package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/store/socket"
)

// Config configures a Relay: the socket for Envoy, and the connections to the control plane.
type Config struct {
	// Socket is the path of the Unix socket. Processes with the same user as this process may connect, for example
	// Envoy. Access permits further processes. Every client acts as this proxy towards the control plane.
	Socket string
	Access socket.Access
	// Target is the address of the control plane: "host:port", or a gRPC target that resolves to TCP addresses.
	// State-of-the-world streams always use Target. With Follow, delta streams dial the owner of the proxy instead, if
	// it is known and no pause between moves is under way.
	Target string
	// Credentials is called for each dial, so that the next connection uses a rotated root. Its error fails the dial.
	// An owner (see Follow) is dialled by its address, but must prove the same server name as Target. The server name
	// is the name in the credentials, or the host of Target if the credentials have no name.
	Credentials func() (credentials.TransportCredentials, error)
	// Metadata is called for each dial and returns the headers to send upstream. A nil function or a nil result means
	// no headers. The result is copied. An error fails the dial. The relay adds navarch-place, navarch-revision and
	// navarch-store. Credentials and Metadata are called by several goroutines at a time.
	Metadata func() (metadata.MD, error)
	// Own lists the agent's own subscriptions on Envoy's delta streams. Their types must differ from each other and
	// from agentapi.OwnerURL.
	Own []Subscription
	// Follow makes the relay request the owner of this proxy (agentapi.OwnerURL). The owner is the replica that should
	// serve the proxy. Envoy's delta streams move to the owner. The new connection is admitted before the old one is
	// dropped.
	Follow bool
	Log    *slog.Logger // nil: no log
}

// Subscription is one of the agent's own subscriptions on Envoy's delta streams. Its responses are not passed to
// Envoy, and Envoy's requests for the type are dropped, so Envoy must not use the type.
type Subscription struct {
	Type string // type URL
	// Names are the names of the subscribed resources. An empty list subscribes to all resources of the type
	// (wildcard).
	Names []string
	// Take receives each resource whose version is empty or differs from the last accepted version of that name. Take
	// owns the resource. If Take returns nil, the resource is accepted. An error refuses all responses that waited for
	// this call, with the text of the error. Take receives a refused version again when the control plane sends it
	// again. Take is not called for removed or missing resources. A response that does not decode is refused without a
	// call. Calls for one subscription do not overlap. The relay holds no locks during a call. If several responses
	// wait, Take receives only the newest version of each resource. It receives no resource that a later response has
	// removed.
	Take func(*discoveryv3.Resource) error
}

// Relay carries Envoy's ADS streams. New creates it. Its methods are safe for concurrent use. Run may be called only
// once.
type Relay struct {
	cfg         Config
	authority   string // host:port of Target: the name that an owner must prove if the credentials name no host
	pace        *pacer
	minRevision minRevision
	takers      []*taker
	report      *agentReport
	stats       counters
	timing      timing
}

// New validates cfg and returns a Relay. New opens no socket and no connection. The error reports all problems of these
// kinds: Socket, Target or Credentials is missing, the socket path is longer than socket.MaxPath, or a subscription in
// Own is invalid (only the first one is reported).
func New(cfg Config) (*Relay, error) {
	var errs []error
	if cfg.Socket == "" {
		errs = append(errs, errors.New("no socket path"))
	} else if len(cfg.Socket) > socket.MaxPath {
		errs = append(errs, fmt.Errorf("socket path %q has %d bytes, at most %d are possible", cfg.Socket, len(cfg.Socket), socket.MaxPath))
	}
	if cfg.Target == "" {
		errs = append(errs, errors.New("no address of a control plane"))
	}
	if cfg.Credentials == nil {
		errs = append(errs, errors.New("no credentials: plaintext must be explicit (insecure.NewCredentials)"))
	}
	if err := checkOwn(cfg.Own); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("relay: %w", errors.Join(errs...))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Relay{cfg: cfg, pace: newPacer(rand.Float64), timing: defaultTiming, report: newAgentReport()}
	r.authority = cfg.Target[strings.LastIndexByte(cfg.Target, '/')+1:]
	r.stats.target = cfg.Target
	for _, sub := range cfg.Own {
		r.takers = append(r.takers, newTaker(sub, r.stats.tookOne))
	}
	return r, nil
}

// Run serves the socket until ctx ends. When ctx ends, Run ends all streams, removes the socket and returns nil. It
// returns an error if it cannot listen on the socket, or if accepting connections fails.
func (r *Relay) Run(ctx context.Context) error {
	l, err := socket.Listen(r.cfg.Socket, r.cfg.Access)
	if err != nil {
		return fmt.Errorf("relay: listen on %s: %w", r.cfg.Socket, err)
	}
	srv := grpc.NewServer(r.options()...)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	if err := srv.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("relay: serve %s: %w", r.cfg.Socket, err)
	}
	return nil
}

// options returns the options of the socket's server. Envoy pings the server every ten seconds (cmd/navarch-agent
// writes Envoy's bootstrap), more often than gRPC permits by default.
func (r *Relay) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(r.carry),
		grpc.MaxRecvMsgSize(math.MaxInt32), // initial versions of a large proxy exceed the default of 4 MiB
		grpc.MaxConcurrentStreams(32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
}
