package plan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/watchdog"
)

// ErrNotReady is what Join answers while there is no complete snapshot.
var ErrNotReady = errors.New("the snapshot is not complete yet")

// errEnded is what requests get from a loop that has ended.
var errEnded = errors.New("the plan loop has ended")

// Source is where snapshots come from: mirror.Mirror.
type Source interface {
	Current() *mirror.Snapshot
	Subscribe() (box *loop.Box[mirror.Change], stop func())
}

// Config of a Loop. Zero durations mean the defaults.
type Config struct {
	Source  Source
	Pool    *pool.Pool
	Cluster string // see Settings
	Opener  Opener // of the Secrets that proxies ask for; nil: none is served with its private key
	// Authoriser says who may have private keys; nil: nobody. Access says for how long its answers are valid.
	Authoriser access.Authoriser
	Access     access.Settings
	Logger     *slog.Logger
	// DebounceAfter (100 ms) and DebounceMax (10 s) are PILOT_DEBOUNCE_AFTER and PILOT_DEBOUNCE_MAX.
	DebounceAfter, DebounceMax time.Duration
	// Coalesce (10 ms) is the least time between two plans of the fast path.
	Coalesce time.Duration
	// DebounceEndpoints is PILOT_ENABLE_EDS_DEBOUNCE=true: endpoints wait like configuration.
	DebounceEndpoints bool
	// Planned is called after every plan, with its revision, its path, when it began, how many edits it took, and for how many proxies
	// the configuration differs now. It is called by the loop and must not block (store/watchdog); it may be nil.
	Planned func(revision int64, path Path, began time.Time, edits, moved int)
	// Linger (10 s; negative: none) is how long the view of a proxy that left is kept up to date: where all proxies of a scope
	// reconnect at once, it is not planned again.
	Linger time.Duration
	// CheckEvery is how often one view is planned from scratch and compared; 0: never.
	CheckEvery time.Duration
	Crashes    *crash.Log // where panics go; nil: one of its own, to Logger
	// Room is how many KiB all configuration may weigh (store/weight) to be planned; 0: there is no bound.
	Room int
}

// Loop is the goroutine that owns a Planner: changes and proxies come in, moved sets go out.
type Loop struct {
	cfg          Config
	log          *slog.Logger
	clients      *obs.Sampled       // log lines that proxies bring about
	watchMoved   *watchdog.Watchdog // of the streams that are told of a plan
	watchPlanned *watchdog.Watchdog // of Config.Planned
	calls        chan func()
	ended        chan struct{}
	resolve      resolver // makes of the source's snapshots those that are planned from; nil: the last one has panicked
	intake       *intake  // which of the source's edits are planned by now
	planner      *Planner // nil until there is a snapshot
	proxies      map[*Handle]*Proxy
	newest       *mirror.Snapshot // resolved, without what is set aside
	good         *mirror.Snapshot // the newest of which everything was planned; nil: none

	config        debounce
	pending       Pending // for the configuration path
	endpoints     edge
	endpointEdits Pending // for the fast path
	noisy         noisy
	going         *going        // the plan of configuration that goes on; nil: none does
	turn          time.Duration // see maxTurn

	opening map[model.Key]chan struct{} // closed when a Secret was opened, or could not be
	failed  map[model.Key]failure       // those that could not

	access    *access.Memory
	askAgain  time.Time                       // when the authoriser may have to be asked
	questions chan struct{}                   // has a place for each that may be asked at once
	deciding  map[view.Identity]chan struct{} // closed when the right of an identity is known

	left []departed // oldest first

	waiting []waiter // oldest first
	lines   []*line  // of proxies that join; that whose turn is next first

	excluded map[model.Key]blame
	excludes bool                            // something is set aside, or was: newest is no longer the source's
	searched time.Time                       // when a proxy that joined last brought a search about
	faulty   map[view.Identity]time.Time     // when what an identity asked for made the planner panic; see callFor
	said     atomic.Pointer[[]Problem]       // of excluded
	latest   atomic.Pointer[mirror.Snapshot] // newest, for others
	fault    func(*input.Input, view.Scope)  // tests have it panic, see input.Input.Fault
	resolver func() resolver                 // makes one of the empty snapshot; tests have it panic

	checking atomic.Bool
	reports  reports
	counts   patchCounts
	found    kept[[]Problem]
	counted  kept[[]PatchCount]
	edition  atomic.Int64 // of what is planned: another one with whatever may have changed it
	looked   bool         // the last call has changed nothing
	revision atomic.Int64
	notified atomic.Int64
}

// departed is a view whose proxy has left.
type departed struct {
	handle *Handle
	until  time.Time
}

// Proxy is one client that joined.
type Proxy struct {
	*Handle
	loop  *Loop
	moved func(Path)
	fault atomic.Bool // its view cannot be planned any more
	asked atomic.Bool // for the name table
}

// NewLoop checks a configuration; Run starts it. An error: there is no source of snapshots, or a duration is not above 0.
func NewLoop(cfg Config) (*Loop, error) {
	if cfg.Source == nil {
		return nil, errors.New("plan: no source of snapshots")
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
		name      string
	}{{&cfg.DebounceAfter, 100 * time.Millisecond, "PILOT_DEBOUNCE_AFTER"}, {&cfg.DebounceMax, 10 * time.Second, "PILOT_DEBOUNCE_MAX"},
		{&cfg.Coalesce, 10 * time.Millisecond, "coalesce"}} {
		if *d.value < 0 {
			return nil, fmt.Errorf("plan: %s: %v; want a duration above 0", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.otherwise
		}
	}
	if cfg.Linger == 0 {
		cfg.Linger = 10 * time.Second
	}
	if cfg.Pool == nil {
		cfg.Pool = &pool.Pool{}
	}
	l := &Loop{cfg: cfg, log: cfg.Logger, calls: make(chan func()), ended: make(chan struct{}), proxies: map[*Handle]*Proxy{},
		opening: map[model.Key]chan struct{}{}, failed: map[model.Key]failure{}, excluded: map[model.Key]blame{}, intake: newIntake(cfg.Room), faulty: map[view.Identity]time.Time{},
		access: access.NewMemory(cfg.Access), questions: make(chan struct{}, maxQuestions), deciding: map[view.Identity]chan struct{}{},
		config: debounce{after: cfg.DebounceAfter, most: cfg.DebounceMax}, endpoints: edge{every: cfg.Coalesce}, turn: maxTurn}
	if l.log == nil {
		l.log = slog.Default()
	}
	l.clients = obs.NewSampled(l.log)
	l.watchMoved, l.watchPlanned = watchdog.New(l.log, "plan: moved"), watchdog.New(l.log, "plan: Planned")
	if l.cfg.Crashes == nil {
		l.cfg.Crashes = crash.New(l.log)
	}
	l.resolver = func() resolver { return resolve.New(l.cfg.Crashes) }
	l.resolve = l.resolver()
	return l, nil
}

// Run plans until the context ends: its error is the only one. What panics is caught (rescue.go).
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.ended)
	defer l.drop()
	box, stop := l.cfg.Source.Subscribe()
	defer stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	check := make(<-chan time.Time)
	if l.cfg.CheckEvery > 0 {
		ticker := time.NewTicker(l.cfg.CheckEvery)
		defer ticker.Stop()
		check = ticker.C
	}
	acted, due := true, time.Time{}
	handle := func(call func()) {
		took := l.take(box) // whoever joins gets what the source has published before
		l.looked = false
		l.piece(call)
		acted = acted || took || !l.looked
	}
	for {
		wait, now := time.Duration(0), time.Now()
		if acted || !now.Before(due) {
			l.edition.Add(1)
		}
		l.piece(func() { l.safely(func() { wait = min(l.release(now), l.plan(now)) }) })
		timer.Reset(wait)
		due = now.Add(wait)
		calls := l.calls
		if l.going != nil {
			calls = nil // they see nothing half-planned
			l.take(box)
		}
		// In this loop one of five things can happen.
		acted = true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-box.Ready():
			l.take(box)
		case call := <-calls:
			acted = false
			handle(call)
			for began := time.Now(); len(l.lines) > 0 && time.Since(began) < l.turn && l.callWaits(handle); {
			}
		case <-timer.C:
		case <-check:
			l.check()
		}
	}
}

// piece does a piece of work, during which nobody else is served.
func (l *Loop) piece(f func()) {
	began := time.Now()
	f()
	obs.PlanPiece.Observe(time.Since(began).Seconds())
}

// callWaits handles one call more; false: none waits. While something is made for joins the loop has always something else to do.
func (l *Loop) callWaits(handle func(call func())) bool {
	select {
	case call := <-l.calls:
		handle(call)
		return true
	default:
		return false
	}
}

// forget lets go of the views of proxies that left long enough ago, and says when the next is due.
func (l *Loop) forget(now time.Time) time.Duration {
	n := 0
	for n < len(l.left) && !now.Before(l.left[n].until) {
		l.planner.Leave(l.left[n].handle)
		n++
	}
	if l.left = slices.Delete(l.left, 0, n); len(l.left) == 0 {
		l.left = nil
		return time.Hour
	}
	return l.left[0].until.Sub(now)
}

func (l *Loop) notify(moved []Moved) {
	l.revision.Store(l.planner.Revision())
	l.watchMoved.Call(func() {
		for _, m := range moved {
			if p := l.proxies[m.Handle]; p != nil && p.moved != nil {
				p.moved(m.Path)
			}
		}
	})
}

// show keeps the gauges.
func (l *Loop) show() {
	st, s := l.planner.Stats(), l.planner.Snapshot()
	for layer, n := range map[string]int{"scope": st.Scopes, "variant": st.Variants, "workload": st.Workloads, "overlay": st.Overlays} {
		obs.Views.WithLabelValues(layer).Set(float64(n))
	}
	obs.Services.Set(float64(s.Len(model.KindService) + s.Len(model.KindServiceEntry)))
	obs.VirtualServices.Set(float64(s.Len(model.KindVirtualService)))
	l.revision.Store(l.planner.Revision())
}

// check plans one view from scratch, beside the loop, and compares.
func (l *Loop) check() {
	if l.planner == nil || l.going != nil || l.pending.Len() > 0 || l.endpointEdits.Len() > 0 || l.checking.Load() {
		return
	}
	for h := range l.proxies { // any: the order of a map is random
		snapshot, have, subscribed := l.newest, h.Set(), l.planner.secrets.Copy(h.View().Secrets)
		l.checking.Store(true)
		go func() {
			defer l.checking.Store(false)
			obs.OracleChecks.Inc()
			_ = l.guarded(func() {
				if bad := compare(have, freshFor(input.New(snapshot, l.cfg.Pool, l.cfg.Cluster), h.Node, subscribed, have.Names != nil)); len(bad) > 0 {
					obs.OracleFailures.Inc()
					l.log.Error("the incremental plan differs from a plan made from scratch", obs.KeyProxy, h.Node.ID, obs.KeyRevision, snapshot.Revision(), obs.KeyName, bad)
				}
			})
		}()
		return
	}
}

// Refresh plans whatever the source has published before: Set is as new then. The error is the context's, or that the loop
// has ended.
func (p *Proxy) Refresh(ctx context.Context) error { return p.loop.settle(ctx) }

// Leave ends what Join began.
func (p *Proxy) Leave() {
	_ = p.loop.call(context.Background(), func() { // an ended loop has no proxies
		delete(p.loop.proxies, p.Handle)
		p.loop.left = append(p.loop.left, departed{p.Handle, time.Now().Add(p.loop.cfg.Linger)})
	})
}

// Err says why the set stays as it is: the proxy's view cannot be planned any more. moved was called then. nil: it can.
func (p *Proxy) Err() error {
	if p.fault.Load() {
		return ErrUnplannable
	}
	return nil
}

// Namespace is the proxy's.
func (p *Proxy) Namespace() string { return p.Node.Namespace }

// Revision is the store's revision that all views are complete at; 0: there is no snapshot.
func (l *Loop) Revision() int64 { return l.revision.Load() }

// Notified is the store's revision up to which the streams of all proxies whose sets changed have been notified; 0: there is no snapshot.
func (l *Loop) Notified() int64 { return l.notified.Load() }

// Problems is Planner.Problems, and what cannot be resolved; the builders are asked in the caller's goroutine, so the loop goes on. The list is not to be changed: it is kept
// until the plan changes. Where it changes all the time a caller may wait for three times as long as the list took to make.
func (l *Loop) Problems() []Problem {
	return l.found.get(l.edition.Load(), func() ([]Problem, int64) {
		var q inquiry
		var edition int64
		l.look(func() {
			edition = l.edition.Load()
			if l.planner != nil {
				q = l.planner.inquire()
				q.found = append(q.found, input.Problems{"": l.intake.room.problems()})
				if l.resolve != nil {
					q.found = append(q.found, input.Problems{"": l.resolve.Problems()})
				}
			}
		})
		return l.reports.answer(q), edition
	})
}

// Stats counts what is shared.
func (l *Loop) Stats() (st Stats) {
	l.look(func() {
		if l.planner != nil {
			st = l.planner.Stats()
		}
	})
	return st
}

// Explain is Planner.Explain for a proxy of this loop, with the set that it explains.
func (l *Loop) Explain(p *Proxy, t xds.Type, name string) (set *manifest.Set, specs []any) {
	l.look(func() { set, specs = p.Set(), l.planner.Explain(p.Handle, t, name) })
	return set, specs
}
