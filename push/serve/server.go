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

// Config configures a Server. Only Planner is required.
type Config struct {
	Planner Planner
	Budget  fanout.Budget // Streams is PILOT_PUSH_THROTTLE
	Workers int           // sending goroutines; 0: one for each processor
	Hooks   Hooks
	// Quarantine withholds versions from a view that several of its proxies refused; nil: one for this process alone.
	Quarantine *quarantine.Quarantine
	// Blame returns the objects from which a refused resource of a view was made, the likeliest cause first. text is the
	// client's message. The goroutine that reads the stream calls it. nil: no objects are named.
	Blame func(p Proxy, t xds.Type, name, text string) []model.Place
	// Authenticate returns the identity of the peer. Its error ends the stream with Unauthenticated, or with Unavailable
	// if it is attest.ErrUnavailable. The zero Caller has shown no identity, and gets everything that needs none. nil:
	// callers on plain text have no identity, and all others are refused.
	Authenticate func(context.Context) (attest.Caller, error)
	// Refused returns why an authenticated caller is no longer served, which ends the stream with PermissionDenied; nil:
	// it may stay. It is called for each stream when it joins, and by Recheck. A nil function refuses no caller.
	Refused func(attest.Caller) error
	// MayHaveKeys reports whether a caller may have Secrets that it has not requested before, and new versions of the
	// others. Without the right the first are left out, and new versions wait for Recheck. With again the stream ends, so
	// that its client returns with a newer credential. It is called before each response of a stream with Secrets, within
	// its turn (fanout.Loop.Join). nil: every caller may have them.
	MayHaveKeys func(attest.Caller) (may, again bool)
	// Callers counts the resources of each identity; nil: a new Ledger with the defaults.
	Callers *budget.Ledger
	// Sources counts the resources of callers without a credential, by their address; nil: a new Ledger.
	Sources *budget.Ledger
	// AgentTypes are served beside Envoy's types; delta.MaxDynamic at most.
	AgentTypes []AgentType
	// Answers are the request types of tools (istioctl). Each request gets one response, and nothing is pushed.
	Answers []Answer
	// Identifier names the control plane in responses (ControlPlane.identifier).
	Identifier string
	// Store returns the name of the store to which revisions belong. Clients receive no name if it is nil or returns an
	// empty string.
	Store func() string
	// Place returns the place of the newest state that was read in the leaders' chain. Clients receive no place if it is
	// nil or returns an empty string.
	Place        func() string
	AckDeadline  time.Duration // time for an ACK before the stream is closed; 0: 60 s
	WriteTimeout time.Duration // time to write a due response before the stream is closed; 0: 30 s
	ResumeTime   time.Duration // time in which a resumed stream must request all types that it held; 0: 5 s
	Log          *slog.Logger  // nil: slog.Default()
	Crashes      *crash.Log    // receives panics that end one stream; nil: a new one that logs to Log
	// Ledger counts the acknowledgements of each published plan; nil: they are not counted.
	Ledger *ledger.Ledger
}

// Server is the xDS server. Register it, listen with Listen, and Run it.
type Server struct {
	cfg        Config
	loop       *fanout.Loop
	sets       delta.Names // subscriptions
	diffs      delta.Diffs
	agentTypes map[string]int // by type URL: index in Config.AgentTypes; immutable
	dynamic    []string       // type URLs of the agent types

	clients *obs.Sampled // log lines that clients cause
	refused *obs.Sampled // log lines about refused resources, separate so that many of them hide no others

	answers map[string]int // by type URL: index in Config.Answers; immutable

	serial  atomic.Uint64
	mu      sync.Mutex // guards streams; a leaf
	streams map[uint64]*stream

	// resuming contains the released versions that are being sent, with the number of streams woken last. Only watch uses
	// it.
	resuming map[quarantine.Key]int
}

// New returns a Server.
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

// Options returns the options of a grpc.Server on which a Server is registered, chosen by measurement. The codec does
// not affect other services on it.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.WriteBufferSize(64 << 10),
		grpc.ReadBufferSize(0), // the default is a buffer of 32 KB for each TLS connection
		grpc.InitialWindowSize(65535),
		// Static windows need no ping for each ACK. gRPC extends the connection's window as frames arrive, even unread ones,
		// so its size bounds nothing. A small window would stop a proxy that resumes (350 KB) every 64 KB until it is written
		// to.
		grpc.InitialConnWindowSize(1 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		experimental.BufferPool(&buffers{}),
		grpc.MaxRecvMsgSize(16 << 20), // initial versions: 44 bytes per name
	}
}

// Register adds the AggregatedDiscoveryService, delta and state of the world, to a server made with Options.
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

// Run sends and checks deadlines until ctx ends, and then returns nil. Nothing is sent without Run.
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

// Budget returns the fan-out's budget in force.
func (s *Server) Budget() fanout.Budget { return s.loop.Budget() }

// Joins returns the number of streams that were opened so far.
func (s *Server) Joins() uint64 { return s.serial.Load() }

// Streams returns the number of streams that have joined.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Waiting returns the number of streams that wait for their turn in a lane.
func (s *Server) Waiting(l fanout.Lane) int { return s.loop.Waiting(l) }

// watch closes streams whose deadline has passed.
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

// add adds a joined stream and counts it.
func (s *Server) add(st *stream) {
	s.mu.Lock()
	s.streams[st.id] = st
	s.mu.Unlock()
	s.cfg.Hooks.Streams(1)
}

// drop removes a stream and counts it out.
func (s *Server) drop(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.mu.Unlock()
	s.cfg.Hooks.Streams(-1)
}

// Recheck ends the streams whose callers are refused now, and returns their number. Other streams are sent the Secrets
// that were held back for lack of a credential, if their callers have one again.
func (s *Server) Recheck() (ended int) {
	for _, st := range s.all() {
		if st.recheck() {
			ended++
		} else {
			st.heldKeys()
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
