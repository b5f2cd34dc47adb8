package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Config configures a Server. Only Planner is required. The functions in a Config are called from several goroutines
// at a time.
type Config struct {
	Planner Planner
	// Budget bounds the sends in progress. Numbers of 0 or less mean the defaults. Budget.Streams is
	// PILOT_PUSH_THROTTLE.
	Budget  fanout.Budget
	Workers int // number of sending goroutines, at most Budget.Streams; 0 or less: one for each processor
	Hooks   Hooks
	// Quarantine withholds versions from a view after several of the view's proxies have refused them. If it is nil,
	// the Server makes a quarantine of its own, which other replicas do not share.
	Quarantine *quarantine.Quarantine
	// Blame returns the objects from which a refused resource of a proxy was made, the likeliest cause first. The
	// parameter text is the client's message. The goroutine that reads the stream calls Blame. The rate of calls for
	// each identity is bounded. If Blame is nil, refusals name no objects.
	Blame func(p Proxy, t xds.Type, name, text string) []model.Place
	// Authenticate returns the identity of the peer of a call. Its error ends the stream. The status is Unavailable if
	// the error matches attest.ErrUnavailable, and Unauthenticated for other errors. The zero Caller is a peer without
	// an identity, which is sent only configuration that needs no identity. If Authenticate is nil, peers on plain text
	// have no identity, and peers on TLS are refused.
	Authenticate func(context.Context) (attest.Caller, error)
	// Refused returns the reason why an authenticated caller is no longer served, or nil if the caller is served. With
	// a reason the stream ends with PermissionDenied. Refused is called when a stream joins, and by Recheck. It is not
	// called for peers without an identity. If Refused is nil, no caller is refused.
	Refused func(attest.Caller) error
	// MayHaveKeys reports in its first result whether a caller may be sent further Secrets and new versions of its
	// present Secrets. Extensions that contain a credential are treated like Secrets. If the first result is false, a
	// request for further Secrets is ignored, and new versions wait until a later call returns true. If in addition the
	// second result is true, a request for further Secrets ends the stream, and Recheck ends a stream whose new
	// versions wait. The client reconnects with a newer credential.
	//
	// MayHaveKeys is called for requests for further Secrets, by Recheck, and before each response of a stream with
	// Secrets or extensions. Before a response, the call occupies the stream's turn (fanout.Loop.Join). MayHaveKeys is
	// not called for peers without an identity. If MayHaveKeys is nil, every caller may have Secrets.
	MayHaveKeys func(attest.Caller) (may, again bool)
	// Callers bounds the resources that each identity uses. If it is nil, the Server makes a Ledger with the default
	// limits.
	Callers *budget.Ledger
	// Sources bounds the resources that callers without a credential use, by their address. If it is nil, the Server
	// makes a Ledger with larger limits.
	Sources *budget.Ledger
	// AgentTypes are served in addition to Envoy's types; at most delta.MaxDynamic.
	AgentTypes []AgentType
	// Answers are the request types of tools (istioctl).
	Answers []Answer
	// Identifier names the control plane in responses to tools (ControlPlane.identifier).
	Identifier string
	// Store returns the name of the etcd store to which revisions belong. If Store is nil or returns "", clients
	// receive no name of a store.
	Store func() string
	// Place returns the position of the newest state that this replica has read, in the sequence of all leaders'
	// writes. The position is an opaque text (agentapi.MinRevision.Place). If Place is nil or returns "", clients
	// receive no position.
	Place        func() string
	AckDeadline  time.Duration // time for an ACK, after which the stream is closed; 0 or less: 60 s
	WriteTimeout time.Duration // time to write a response, after which the stream is closed; 0 or less: 30 s
	ResumeTime   time.Duration // time for a resuming client to request all types that it had; 0 or less: 5 s
	Log          *slog.Logger  // if nil, slog.Default()
	Crashes      *crash.Log    // receives panics that end one stream; if nil, a crash.Log that writes to Log
	// Ledger counts the acknowledgements of each published plan. If it is nil, they are not counted.
	Ledger *ledger.Ledger
}

// Server is the xDS server. The caller registers it on a grpc.Server (Register, Options), listens with Listen, and
// calls Run. Its methods are safe for concurrent use.
type Server struct {
	cfg        Config
	loop       *fanout.Loop
	sets       delta.Names // interns subscriptions
	diffs      delta.Diffs
	agentTypes map[string]int // by type URL: index in Config.AgentTypes; immutable
	dynamic    []string       // type URLs of the agent types

	clients *obs.Sampled // log lines that clients cause
	refused *obs.Sampled // log lines about refused resources; separate, since many of them would suppress other lines

	answers map[string]int // by type URL: index in Config.Answers; immutable

	serial  atomic.Uint64
	mu      sync.Mutex // guards streams; no other lock is acquired while it is held
	streams map[uint64]*stream

	// resuming maps a released version that is being sent to the number of streams that were marked last. Only watch
	// uses it.
	resuming map[quarantine.Key]int
}

// New returns a Server. The server sends nothing before Run is called. New panics if cfg has more than
// delta.MaxDynamic agent types.
func New(cfg Config) *Server {
	cfg.Hooks.fill()
	if cfg.Quarantine == nil {
		cfg.Quarantine = quarantine.New(quarantine.Config{Log: cfg.Log})
	}
	if cfg.Callers == nil {
		cfg.Callers = budget.New(budget.Config{})
	}
	if cfg.Sources == nil {
		cfg.Sources = budget.New(budget.Config{Limits: sourceLimits})
	}
	if cfg.Authenticate == nil {
		cfg.Authenticate = plainTextOnly
	}
	cfg.AckDeadline = cmp.Or(max(cfg.AckDeadline, 0), time.Minute)
	cfg.WriteTimeout = cmp.Or(max(cfg.WriteTimeout, 0), 30*time.Second)
	cfg.ResumeTime = cmp.Or(max(cfg.ResumeTime, 0), 5*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Crashes == nil {
		cfg.Crashes = crash.New(cfg.Log)
	}
	s := &Server{cfg: cfg, loop: fanout.New(cfg.Budget, cfg.Workers, cfg.Log), streams: map[uint64]*stream{}, agentTypes: map[string]int{},
		clients: obs.NewSampled(cfg.Log), refused: obs.NewSampled(cfg.Log), answers: map[string]int{}, resuming: map[quarantine.Key]int{}}
	for i, a := range cfg.Answers {
		s.answers[a.TypeURL] = i
	}
	if len(cfg.AgentTypes) > delta.MaxDynamic {
		panic("serve: too many agent types")
	}
	for i, a := range cfg.AgentTypes {
		s.agentTypes[a.TypeURL], s.dynamic = i, append(s.dynamic, a.TypeURL)
	}
	return s
}

// Options returns the options that a grpc.Server needs for a Server. Their sizes were chosen by measurement. Other
// services may be registered on the same grpc.Server.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.WriteBufferSize(64 << 10),
		grpc.ReadBufferSize(0), // the default is a buffer of 32 KB for each TLS connection
		grpc.InitialWindowSize(65535),
		// With static windows gRPC sends no ping for each ACK. gRPC extends the connection's window as frames arrive,
		// even if the frames are not read, so the window's size does not bound memory. With a small window, a proxy
		// that resumes (350 KB) would have to wait for a window update after every 64 KB.
		grpc.InitialConnWindowSize(1 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		experimental.BufferPool(&buffers{}),
		grpc.MaxRecvMsgSize(16 << 20), // a resuming client lists versions: 44 bytes and the name for each resource
	}
}

// Register registers the AggregatedDiscoveryService (delta and state of the world) on a grpc.Server, which must have
// been made with Options.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	handler := func(sotw bool) grpc.StreamHandler {
		return func(_ any, g grpc.ServerStream) error { return s.serve(g, sotw) }
	}
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", Handler: handler(false), ServerStreams: true, ClientStreams: true},
			{StreamName: "StreamAggregatedResources", Handler: handler(true), ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, s)
}

// Run sends responses and checks deadlines until ctx ends. It does not close the streams. It returns nil if ctx was
// cancelled, and the error of ctx if the deadline of ctx has passed. Nothing is sent before Run is called. Run must be
// called once.
func (s *Server) Run(ctx context.Context) error {
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(ctx) })
	err := s.loop.Run(ctx)
	watch.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Budget returns Config.Budget, with the defaults instead of numbers of 0 or less.
func (s *Server) Budget() fanout.Budget { return s.loop.Budget() }

// Joins returns the number of streams that were opened so far, whether or not they joined.
func (s *Server) Joins() uint64 { return s.serial.Load() }

// Streams returns the number of joined streams. A stream counts until its handler returns.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Waiting returns the number of streams that wait for their turn in a lane. It panics unless l is below
// fanout.NumLanes.
func (s *Server) Waiting(l fanout.Lane) int { return s.loop.Waiting(l) }

// watch closes streams whose deadline has passed, retries withheld versions, and lets caches and budgets expire.
func (s *Server) watch(ctx context.Context) {
	period := min(time.Second, s.cfg.AckDeadline/4, s.cfg.ResumeTime/2)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.diffs.Tick()
			s.cfg.Callers.Tick()
			s.cfg.Sources.Tick()
			s.retry()
			for _, st := range s.all() {
				st.check(now)
			}
		}
	}
}

// all returns the joined streams, in any order.
func (s *Server) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
	}
	return all
}

// add adds a joined stream, and reports it to a hook.
func (s *Server) add(st *stream) {
	s.mu.Lock()
	s.streams[st.id] = st
	s.mu.Unlock()
	s.cfg.Hooks.Streams(1)
}

// drop removes a stream, and reports it to a hook.
func (s *Server) drop(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.mu.Unlock()
	s.cfg.Hooks.Streams(-1)
}

// Recheck ends the streams of callers that Config.Refused refuses now, and returns the number of these streams. On the
// remaining streams, Secrets may have been held back because of an expired credential. Such Secrets are sent if
// Config.MayHaveKeys permits them again. If it does not, and its second result is true, Recheck ends the stream without
// counting it. Recheck does not wait for sends.
func (s *Server) Recheck() (ended int) {
	for _, st := range s.all() {
		if st.recheck() {
			ended++
		} else {
			st.retryHeldSecrets()
		}
	}
	return ended
}

// plainTextOnly is the default of Config.Authenticate.
func plainTextOnly(ctx context.Context) (attest.Caller, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if _, secure := p.AuthInfo.(credentials.TLSInfo); secure {
			return attest.Caller{}, errors.New("this server was given no way to verify credentials")
		}
	}
	return attest.Caller{}, nil
}
