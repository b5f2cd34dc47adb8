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

// Config says where Envoy connects, and to which control plane its streams are carried.
type Config struct {
	// Socket is the path of the Unix socket, and Access who may connect beside the user of this process, as which Envoy runs: who
	// does acts as this proxy towards the control plane.
	Socket string
	Access socket.Access
	// Target is the control plane, "host:port" or any gRPC target: where the first upstream of a stream goes, and every
	// later one for which no owner is known or can be reached.
	Target string
	// Credentials is asked once per dial, so that a rotated root is used by the next connection. An owner is dialled by its
	// address, but must prove the same name as Target: the name that the credentials carry, or where they carry none, the
	// host of Target.
	Credentials func() (credentials.TransportCredentials, error)
	// Metadata is asked once per dial for the headers to send upstream; nil: none. The relay adds navarch-revision and
	// navarch-store.
	Metadata func() (metadata.MD, error)
	// Own are the agent's own subscriptions on the delta streams of Envoy.
	Own []Subscription
	// Follow lets the relay ask for the owner of this proxy (agentapi.OwnerURL) and move its delta streams there, make before break.
	Follow bool
	Log    *slog.Logger
}

// Subscription is a type that the agent asks for beside Envoy, on Envoy's delta stream. Envoy never sees its responses,
// so it must be no type that Envoy asks for: a request of Envoy's for it is dropped.
type Subscription struct {
	Type string // type URL
	// Names are the resources to ask for; none: all that the server has (a wildcard).
	Names []string
	// Take is given each resource whose version is not the last that it took. nil acknowledges it; an error refuses it
	// upstream with its text, and the last one taken stands. A resource that the server removes, or does not have, is
	// acknowledged without a call. It runs on a goroutine of the subscription, one call at a time, never with a lock held; of
	// responses that come meanwhile the newest of each resource is taken. It owns the resource.
	Take func(*discoveryv3.Resource) error
}

// Relay carries ADS streams. Make it with New.
type Relay struct {
	cfg         Config
	authority   string // host:port of the target: the name that an owner has to prove, where the credentials carry none
	pace        *pacer
	minRevision minRevision
	takers      []*taker
	saying      *saying
	stats       counters
	timing      timing
}

// New checks cfg; it opens nothing. An error names all that is missing or too long.
func New(cfg Config) (*Relay, error) {
	var errs []error
	if cfg.Socket == "" {
		errs = append(errs, errors.New("no socket path"))
	} else if len(cfg.Socket) > socket.MaxPath {
		errs = append(errs, fmt.Errorf("socket path %q has %d bytes, the system takes %d", cfg.Socket, len(cfg.Socket), socket.MaxPath))
	}
	if cfg.Target == "" {
		errs = append(errs, errors.New("no address of a control plane"))
	}
	if cfg.Credentials == nil {
		errs = append(errs, errors.New("no credentials: say plaintext explicitly"))
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
	r := &Relay{cfg: cfg, pace: newPacer(rand.Float64), timing: defaultTiming, saying: newSaying()}
	r.authority = cfg.Target[strings.LastIndexByte(cfg.Target, '/')+1:]
	r.stats.target = cfg.Target
	for _, sub := range cfg.Own {
		r.takers = append(r.takers, newTaker(sub, r.stats.tookOne))
	}
	return r, nil
}

// Run serves the socket until ctx ends, then ends all streams and removes the socket. An error: the socket cannot be listened on.
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

// options are those of the server at the socket. Envoy pings it every ten seconds (cmd/navarch-agent writes its bootstrap), which is more
// than gRPC allows by default.
func (r *Relay) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(r.carry),
		grpc.MaxRecvMsgSize(math.MaxInt32), // initial versions of a large proxy pass the default of 4 MiB
		grpc.MaxConcurrentStreams(32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
}
