// Package proxy simulates a fleet of Envoys with their agents: N proxies in one process. Each proxy has its own
// connection, node, subscriptions, acknowledgements and warming, and checks the responses of an xDS server.
//
// A Fleet speaks delta ADS with its own framing over golang.org/x/net/http2, because gRPC clients would use most of a
// small machine. Each proxy has one goroutine, and buffers only while they contain data. Names and versions are shared:
// proxies with equal versions refer to the same interned memory.
//
// Owns: the simulated proxies and their connections. Reads: push/xds, loadtest/gauge. Never: imports other parts of
// Navarch, because it must check any server of the protocol.
package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/xds"
)

// Config contains the settings of a Fleet. Only Addrs is required.
type Config struct {
	// Addrs are the servers' addresses, host:port. Proxies are distributed over them in turn, and a proxy without a stream
	// tries the next one.
	Addrs []string
	// TLS returns the client configuration of one proxy; nil: plain text. It is called at every dial, so equal parts (the
	// pool of roots) should be shared. "h2" is added to NextProtos.
	TLS func(Identity) (*tls.Config, error)
	// Authority is the :authority of the requests; empty: the address.
	Authority string
	// Header returns further gRPC metadata of one proxy, for example authorization; nil: none is added.
	Header func(Identity) [][2]string

	Node         NodeKind
	IstioVersion string // ISTIO_VERSION of the nodes; empty: absent

	// Sample is the share of proxies (0 to 1) that decode and validate all contents, in addition to the checks of all
	// proxies.
	Sample float64
	// SotW is the share of proxies (0 to 1) that use the older form of the protocol, state of the world, as Envoys without
	// a stock agent may. They receive everything again when they reconnect, and neither follow an owner nor request trust.
	SotW float64
	// Behaviour returns the behaviour of a proxy; nil: all are healthy. SetBehaviour changes it later.
	Behaviour func(i int, id Identity) Behaviour

	// JoinRate is the number of proxies that start each second; 0: as many as Dialing permits.
	JoinRate float64
	// Dialing is the number of concurrent connection attempts, TLS handshake included; 0: 64.
	Dialing int
	// Window is the flow-control window of streams and connections in bytes; 0: 1 MiB, as in Istio's agent.
	Window int
	// WarmTimeout is the longest wait of a cluster for its endpoints, or of a listener for its routes. Then the wait is a
	// violation, and the proxy continues without; 0: 15 s, Envoy's initial_fetch_timeout.
	WarmTimeout time.Duration
	// RevertWindow is the time after the return of an older version in which the fleet can show that the change was
	// reverted: most proxies leave the newer version; 0: 5 s.
	RevertWindow time.Duration
	// BackOff and MaxBackOff are the first and the longest interval between connection attempts. The wait is random within
	// the interval, as in Envoy; 0: 0.5 s and 30 s.
	BackOff, MaxBackOff time.Duration
	// Follow subscribes to navarch.io/owner and moves to that address, make before break, as navarch-agent does. The
	// highest seen revision is sent as navarch-revision.
	Follow bool
	// MoveWithin is the time within which a move begins, at a random moment, after a proxy has learned its owner; 0: 2 s,
	// as in navarch-agent.
	MoveWithin time.Duration
	// Trust subscribes to the mesh's trust (the agent resource ROOTCA), as navarch-agent does.
	Trust bool
	// OnTrust receives the CertificateValidationContext of one proxy; its error rejects it. It must not block.
	OnTrust func(Identity, []byte) error
	// OnVersion is called for each resource version that a proxy accepts and did not hold before. It runs on the proxies'
	// goroutines and must not block; nil: it is not called.
	OnVersion func(id Identity, of Ref, version string)
	// PerSource is the number of proxies that share one loopback source address (127.0.0.0/8), so that ports suffice; 0:
	// 10,000. It has no effect for servers that are not on loopback.
	PerSource int
	// Dangling reports whether a cluster that routes name deliberately does not exist; nil: all must exist.
	Dangling func(cluster string) bool
	// Bootstrap are the names of clusters in the proxies' bootstrap; nil: those of Istio's bootstrap.
	Bootstrap []string
}

// bootstrapClusters are the static clusters of Istio's bootstrap.
var bootstrapClusters = []string{"prometheus_stats", "agent", "sds-grpc", "xds-grpc", "zipkin", "datadog", "lightstep", "xds"}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.WarmTimeout, 15*time.Second)
	set(&c.RevertWindow, 5*time.Second)
	set(&c.BackOff, 500*time.Millisecond)
	set(&c.MaxBackOff, 30*time.Second)
	set(&c.MoveWithin, 2*time.Second)
	if c.Dialing == 0 {
		c.Dialing = 64
	}
	if c.Window == 0 {
		c.Window = 1 << 20
	}
	if c.PerSource == 0 {
		c.PerSource = 10000
	}
	if c.Bootstrap == nil {
		c.Bootstrap = bootstrapClusters
	}
	return c
}

// Fleet is N simulated proxies. Its methods may be called from any goroutine.
type Fleet struct {
	cfg     Config
	names   *names
	count   counters
	decoder *decoder
	dialing chan struct{}

	bootstrap bitset // indexes of Config.Bootstrap
	suspects  suspects
	fragments fragments
	rooms     chan struct{}
	storeID   atomic.Value // string: navarch-store of the servers

	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closing sync.Once

	mu      sync.Mutex
	proxies []*sim // by index; nil: removed
	pace    time.Time
	changed chan struct{} // closed and replaced when a proxy joins or leaves
}

// New returns a fleet without proxies; the caller ends it with Close. The error names a setting that is not possible.
func New(cfg Config) (*Fleet, error) {
	cfg = cfg.withDefaults()
	if len(cfg.Addrs) == 0 {
		return nil, fmt.Errorf("fleet: no address of a server")
	}
	if cfg.Window < 1<<14 || cfg.Window >= 1<<31 {
		return nil, fmt.Errorf("fleet: window of %d bytes: want 16 KiB to 2 GiB", cfg.Window)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{cfg: cfg, names: newNames(), dialing: make(chan struct{}, cfg.Dialing), ctx: ctx, cancel: cancel, rooms: newRooms(),
		changed: make(chan struct{})}
	f.decoder = newDecoder(runtime.GOMAXPROCS(0))
	for _, name := range cfg.Bootstrap {
		f.bootstrap.add(f.names.name(xds.Cluster, name).index)
	}
	f.wg.Go(f.judge)
	return f, nil
}

// Add starts proxies at Config.JoinRate. It returns at once, with the index of the first proxy.
func (f *Fleet) Add(ids ...Identity) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := len(f.proxies)
	if f.ctx.Err() != nil {
		return at
	}
	now := time.Now()
	if f.pace.Before(now) {
		f.pace = now
	}
	for _, id := range ids {
		s := newSim(f, len(f.proxies), id)
		f.proxies = append(f.proxies, s)
		f.count.proxies.Add(1)
		var wait time.Duration
		if f.cfg.JoinRate > 0 {
			wait = f.pace.Sub(now)
			f.pace = f.pace.Add(time.Duration(float64(time.Second) / f.cfg.JoinRate))
		}
		f.wg.Go(func() { s.run(wait) })
	}
	return at
}

// judge evaluates suspicious steps periodically.
func (f *Fleet) judge() {
	t := time.NewTicker(f.cfg.RevertWindow / 4)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			f.suspects.judge(f, now)
		case <-f.ctx.Done():
			return
		}
	}
}

// Remove ends proxies like Pods that are deleted, without waiting, and returns their number. Probes no longer expect
// anything from them.
func (f *Fleet) Remove(which func(i int, id Identity) bool) int {
	n := 0
	for _, s := range f.pick(which) {
		s.post(func() { s.quit = true })
		s.interrupt()
		f.mu.Lock()
		if f.proxies[s.index] != nil {
			f.proxies[s.index] = nil
			f.count.proxies.Add(-1)
			n++
		}
		f.mu.Unlock()
		f.names.probes(func(p *Probe) { p.gone(s.index) })
	}
	return n
}

// Reconnect ends streams and opens them again as r describes. It returns the number of proxies, without waiting.
func (f *Fleet) Reconnect(which func(i int, id Identity) bool, r Reconnect) int {
	picked := f.pick(which)
	for i, s := range picked {
		delay := time.Duration(0)
		if len(picked) > 0 {
			delay = r.Spread * time.Duration(i) / time.Duration(len(picked))
		}
		s.after(delay, func() { s.reconnect(r) })
	}
	return len(picked)
}

// SetBehaviour changes the behaviour of the selected proxies from now on, and returns their number.
func (f *Fleet) SetBehaviour(which func(i int, id Identity) bool, b Behaviour) int {
	picked := f.pick(which)
	var set sync.WaitGroup
	for _, s := range picked {
		set.Add(1)
		if !s.post(func() { s.behave(b); set.Done() }) {
			set.Done()
		}
	}
	set.Wait()
	return len(picked)
}

// Send sends bytes as a gRPC message on the streams of proxies, and returns their number. Its prefix is added.
func (f *Fleet) Send(which func(i int, id Identity) bool, message []byte) int {
	picked := f.pick(which)
	for _, s := range picked {
		s.post(func() { s.sendRaw(message) })
	}
	return len(picked)
}

// WaitJoined waits until n proxies are connected and warm. The error, when ctx ends, contains the number that are.
func (f *Fleet) WaitJoined(ctx context.Context, n int) error {
	return f.wait(ctx, fmt.Sprintf("%d joined", n), func() bool { return f.count.joined.Load() >= int64(n) })
}

func (f *Fleet) wait(ctx context.Context, what string, is func() bool) error {
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if is() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s := f.Stats()
			return fmt.Errorf("waited for %s: of %d proxies %d are connected and %d joined (%v): %w", what, s.Proxies, s.Connected,
				s.Joined, s.Errors, ctx.Err())
		}
	}
}

// signal wakes the waiters for proxies that join or leave.
func (f *Fleet) signal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Close ends all proxies and waits for their goroutines. Repeated calls do nothing; proxies cannot be added afterwards.
func (f *Fleet) Close() { f.closing.Do(f.close) }

func (f *Fleet) close() {
	f.mu.Lock()
	f.cancel()
	f.mu.Unlock()
	for _, s := range f.all() {
		s.post(func() { s.quit = true })
		s.interrupt()
	}
	f.wg.Wait()
	f.decoder.close()
}

// All selects every proxy.
func All(int, Identity) bool { return true }

// First selects the first n proxies.
func First(n int) func(int, Identity) bool { return func(i int, _ Identity) bool { return i < n } }

func (f *Fleet) all() []*sim { return f.pick(All) }

func (f *Fleet) pick(which func(int, Identity) bool) []*sim {
	f.mu.Lock()
	defer f.mu.Unlock()
	var picked []*sim
	for i, s := range f.proxies {
		if s != nil && which(i, s.id) {
			picked = append(picked, s)
		}
	}
	return picked
}

func (f *Fleet) identity(i int) Identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.proxies[i]; s != nil {
		return s.id
	}
	return Identity{Name: "removed"}
}

// Stats returns a snapshot of all counters.
func (f *Fleet) Stats() Stats {
	c := &f.count
	s := Stats{
		Proxies: int(c.proxies.Load()), Connected: int(c.connected.Load()), Joined: int(c.joined.Load()),
		Sampled: int(c.sampledNow.Load()), Unacked: int(c.unacked.Load()), Goroutines: runtime.NumGoroutine(),
		Dials: c.dials.Load(), Streams: c.streams.Load(), GoAways: c.goAways.Load(), Moves: c.moves.Load(),
		SocketIn: c.socketIn.Load(), SocketOut: c.socketOut.Load(),
		Join: c.join.Clone(), Resume: c.resume.Clone(), AckAfter: c.ackAfter.Clone(),
	}
	s.fill()
	for t := range c.types {
		s.Types[typeName(t)] = c.types[t].read()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, n := range c.ended {
		s.Ended[key], s.Errors[key] = n, c.errors[key]
	}
	for kind, v := range c.found {
		s.Found[kind] = v
	}
	return s
}

// CheckEqual compares proxies with the same View, which must hold the same names and versions of the given types (by
// default CDS, EDS and RDS). It is for moments without changes. Each proxy that differs from the first one of its View
// is a violation (Unequal); their number is returned.
func (f *Fleet) CheckEqual(types ...xds.Type) int {
	if len(types) == 0 {
		types = []xds.Type{xds.Cluster, xds.Endpoint, xds.Route}
	}
	models := map[string]*sim{}
	differ := 0
	for _, s := range f.all() {
		if s.id.View == "" {
			continue
		}
		model, ok := models[s.id.View]
		if !ok {
			models[s.id.View] = s
			continue
		}
		for _, t := range types {
			if detail := f.differs(model, s, t); detail != "" {
				differ++
				f.count.violation(Unequal, Example{Proxy: s.id.String(), Type: t.String(), Detail: detail})
				break
			}
		}
	}
	return differ
}
