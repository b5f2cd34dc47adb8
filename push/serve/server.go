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
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Config is what a Server is made of; only Planner is required.
type Config struct {
	Planner Planner
	Budget  fanout.Budget // Streams is PILOT_PUSH_THROTTLE
	Workers int           // goroutines that send; 0: one for each processor
	Hooks   Hooks
	// Quarantine withholds from a view what several proxies refused; nil: one of this process alone.
	Quarantine *quarantine.Quarantine
	// Blame names the objects that a refused resource of a view was made of, the likeliest culprit first; text is the
	// client's. The goroutine that reads the stream calls it. nil: they are not named.
	Blame func(p Proxy, t xds.Type, name, text string) []model.Place
	// Authenticate says who the peer is; its error ends the stream with Unauthenticated (with
	// Unavailable where it is attest.ErrUnavailable). The zero Caller has shown no identity, and is served what needs none. nil:
	// callers on plain text have no identity, and all others are refused.
	Authenticate func(context.Context) (attest.Caller, error)
	// Refused says why somebody who was authenticated is served no longer, which ends the stream with PermissionDenied; nil: they
	// may stay. It is asked for each stream when it joins, and by Recheck. nil: nobody is refused.
	Refused func(attest.Caller) error
	// MayHaveKeys says whether somebody may have Secrets that they have not asked for before, and new versions of those that they
	// have; the first are left out otherwise, the second wait (Recheck). again: the stream ends, and its client comes back with a
	// newer credential. It is asked before each response of a stream that asks for Secrets, in its turn (fanout.Loop.Join). nil: they may.
	MayHaveKeys func(attest.Caller) (may, again bool)
	// Callers counts what each identity has; nil: one of its own, with the defaults.
	Callers *budget.Ledger
	// Sources counts what callers without a credential have, by the address that they come from; nil: one of its own.
	Sources *budget.Ledger
	// AgentTypes are served beside Envoy's types; delta.MaxDynamic at most.
	AgentTypes []AgentType
	// Answers are for questions of tools (istioctl), by type URL: each is answered once, and nothing is pushed.
	Answers []Answer
	// Identifier says in answers which control plane gives them (ControlPlane.identifier).
	Identifier string
	// Store names the store that revisions are of, once it is known; nil, or empty: clients are not told.
	Store func() string
	// Place is where the newest state that was read stands among all that leaders have written; nil, or empty: clients are not told.
	Place        func() string
	AckDeadline  time.Duration // a response that is not acknowledged for so long closes the stream; 60 s
	WriteTimeout time.Duration // so does one that was due and could not be written; 30 s
	ResumeTime   time.Duration // how long a resumed stream has to ask for all the types it held; 5 s
	Log          *slog.Logger  // nil: slog.Default()
	Crashes      *crash.Log    // where panics go that end one stream; nil: one of its own, to Log
}

// Server is the xDS server. Register it, listen with Listen, and Run it.
type Server struct {
	cfg        Config
	loop       *fanout.Loop
	sets       delta.Names // subscriptions
	diffs      delta.Diffs
	agentTypes map[string]int // by type URL: which of Config.AgentTypes; never changed
	dynamic    []string       // their type URLs

	clients *obs.Sampled // log lines that clients cause
	refused *obs.Sampled // those about resources that they refuse: many of these hide no others

	answers map[string]int // which of Config.Answers, in the same way

	serial  atomic.Uint64
	mu      sync.Mutex // guards streams; nothing else is locked while it is held
	streams map[uint64]*stream

	resuming map[quarantine.Key]int // released versions that are being sent: how many streams were woken last; watch's
}

// New makes a server.
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

// Options are the options of a grpc.Server that a Server is registered with (measured). The codec
// leaves other services on it alone.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.WriteBufferSize(64 << 10),
		grpc.ReadBufferSize(0), // a buffer of 32 KB for each TLS connection otherwise
		grpc.InitialWindowSize(65535),
		// Static windows: no ping for each ACK. gRPC gives the connection's back as frames come, read or not, so its size bounds
		// nothing; a small one stops a proxy that resumes (350 KB) each 64 KB, until it is written to.
		grpc.InitialConnWindowSize(1 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		experimental.BufferPool(&buffers{}),
		grpc.MaxRecvMsgSize(16 << 20), // initial versions: 44 bytes a name
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

// Run sends and watches deadlines until ctx ends, which is no error. Without it nothing is sent.
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

// Budget is the fan-out's budget in force.
func (s *Server) Budget() fanout.Budget { return s.loop.Budget() }

// Joins is how many streams were opened so far.
func (s *Server) Joins() uint64 { return s.serial.Load() }

// Waiting is how many streams wait for their turn in a lane.
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

func (s *Server) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
	}
	return all
}

func (s *Server) add(st *stream) {
	s.mu.Lock()
	s.streams[st.id] = st
	s.mu.Unlock()
	s.cfg.Hooks.Streams(1)
}

func (s *Server) drop(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.mu.Unlock()
	s.cfg.Hooks.Streams(-1)
}

// Recheck ends the streams whose callers are refused by now, and returns how many these are. Others are sent the Secrets that were
// held back while their callers had no credential in force, where they have one again.
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

// plainTextOnly is Config.Authenticate by default.
func plainTextOnly(ctx context.Context) (attest.Caller, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if _, secure := p.AuthInfo.(credentials.TLSInfo); secure {
			return attest.Caller{}, errors.New("this server was given no way to verify credentials")
		}
	}
	return attest.Caller{}, nil
}
