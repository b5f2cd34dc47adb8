// Package proxy simulates a fleet of Envoys with their agents: N proxies in one process, each with a connection, a node,
// subscriptions, acknowledgements and warming rules of its own, which judge what a server of the xDS protocol sends.
//
// A Fleet speaks delta ADS with frames of its own over golang.org/x/net/http2, because gRPC clients would dominate a small
// machine: one goroutine for each proxy, buffers that only exist while there is something in them, names and versions
// shared by all (pages of versions are interned: proxies that hold the same point to the same memory).
//
// Owns: the simulated proxies and their connections.  Reads: push/xds, loadtest/gauge.  Never: anything else of Navarch:
// it must be able to judge any server of the protocol.
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

// Config is what a Fleet is made of. Only Addrs is needed.
type Config struct {
	// Addrs are host:port of the servers; proxies are dealt out over them in turn, and a proxy that lost its stream tries
	// the next one.
	Addrs []string
	// TLS is the client configuration of one proxy; nil: plain text. It is called at every dial; sharing what is equal
	// (the pool of roots) is the caller's. "h2" is added to NextProtos.
	TLS func(Identity) (*tls.Config, error)
	// Authority is the :authority of the requests; empty: the address.
	Authority string
	// Header gives further gRPC metadata of one proxy, for example authorization; nil: none.
	Header func(Identity) [][2]string

	Node         NodeKind
	IstioVersion string // ISTIO_VERSION of the nodes; empty: absent

	// Sample is the share of proxies (0 to 1) that decode and validate everything that they are sent, on top of what all
	// check.
	Sample float64
	// SotW is the share of proxies (0 to 1) that speak the protocol's older form, state of the world, as Envoys without a stock agent may: they
	// are sent everything again when they reconnect, and neither follow an owner nor ask for trust.
	SotW float64
	// Behaviour says how a proxy behaves; nil: all are healthy. It can be changed later with SetBehaviour.
	Behaviour func(i int, id Identity) Behaviour

	// JoinRate is how many proxies are started each second; 0: as many as Dialing lets through.
	JoinRate float64
	// Dialing is how many connections are being made (TLS handshake included) at once; 0: 64.
	Dialing int
	// Window is the flow-control window of streams and connections, bytes; 0: 1 MiB, as istio-agent sets it.
	Window int
	// WarmTimeout is how long a cluster waits for its endpoints, or a listener for its routes, before that is a violation
	// and the proxy goes on without; 0: 15 s, Envoy's initial_fetch_timeout.
	WarmTimeout time.Duration
	// RevertWindow is how long the fleet is given to show that an older version which came back is a change that was
	// really reverted (everybody leaves the newer one); 0: 5 s.
	RevertWindow time.Duration
	// BackOff and MaxBackOff are the first and the longest interval between tries to connect; the wait is drawn evenly
	// from the interval, as Envoy does; 0: 0.5 s and 30 s.
	BackOff, MaxBackOff time.Duration
	// Follow subscribes to navarch.io/owner and moves to the address that it names, make before break, as navarch-agent
	// does; the highest revision seen is sent as navarch-revision.
	Follow bool
	// MoveWithin is the time within which a move begins, at random, after a proxy was told of its owner; 0: 2 s, as
	// navarch-agent's.
	MoveWithin time.Duration
	// Trust subscribes to the mesh's trust (the agent resource ROOTCA), as navarch-agent does.
	Trust bool
	// OnTrust is given the CertificateValidationContext that came for one proxy; an error refuses it. It must not wait.
	OnTrust func(Identity, []byte) error
	// OnVersion is told each version of a resource that a proxy takes in place of another, or of none; not what it has
	// already. It is called by the proxies' goroutines and must not wait; nil: nobody wants to know.
	OnVersion func(id Identity, of Ref, version string)
	// PerSource is how many proxies share one loopback source address (127.0.0.0/8), so that ports do not run out; 0:
	// 10,000. Addresses that are not loopback are dialed as they are.
	PerSource int
	// Dangling says which clusters are named by routes although they do not exist on purpose; nil: none.
	Dangling func(cluster string) bool
	// Bootstrap are names of clusters that the proxies have without being sent them; nil: those of Istio's bootstrap.
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

// New makes a fleet without proxies. An error says what of the Config is not possible. Close ends it.
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

// Add starts proxies, at Config.JoinRate. It returns at once, with the index of the first.
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

// judge settles suspicious steps from time to time.
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

// Remove ends proxies as pods that are deleted, and waits for nothing. No probe expects anything of them any more.
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

// Reconnect ends streams and opens them again, as r says; it returns how many, and waits for nothing.
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

// SetBehaviour changes how proxies behave; it returns how many, and all of them do from then on.
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

// Send sends bytes as a gRPC message (without its prefix) on the streams of proxies.
func (f *Fleet) Send(which func(i int, id Identity) bool, message []byte) int {
	picked := f.pick(which)
	for _, s := range picked {
		s.post(func() { s.sendRaw(message) })
	}
	return len(picked)
}

// WaitJoined waits until n proxies are joined: connected and warm. An error tells how many are when the context ends.
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

// signal wakes those who wait for proxies to join or leave.
func (f *Fleet) signal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Close ends all proxies and waits for their goroutines. A second call does nothing; no proxy can be added any more.
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

// All picks every proxy.
func All(int, Identity) bool { return true }

// First picks the first n proxies.
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

// Stats is a snapshot of all counters.
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

// CheckEqual compares the proxies of equal Views: they must hold the same names and versions of the given types (none
// given: CDS, EDS and RDS). It is for moments when nothing changes; each proxy that differs from the first of its View is
// a violation (Unequal). It returns how many differ.
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
