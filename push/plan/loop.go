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

// ErrNotReady is the error of Join and Base while there is no plan. Either the loop has received no complete snapshot
// yet, or the snapshot cannot be planned.
var ErrNotReady = errors.New("the snapshot is not complete yet")

// errEnded is the error of calls to a loop that has ended.
var errEnded = errors.New("the plan loop has ended")

// Source provides the snapshots of the store. mirror.Mirror implements it.
type Source interface {
	// Current returns the newest complete snapshot, or nil before the first one.
	Current() *mirror.Snapshot
	// Subscribe returns a box that receives every later change. Changes that wait in the box are merged. If a snapshot
	// is already published, the first change leads from the empty snapshot to that snapshot. The function stop ends the
	// subscription.
	Subscribe() (box *loop.Box[mirror.Change], stop func())
}

// Loop owns a Planner, and runs it in one goroutine (Run). It receives changes and proxies, and notifies the streams of
// proxies whose sets (planned resources) changed. Its methods may be called by any goroutine. They wait for the loop's
// goroutine unless their comments say otherwise.
type Loop struct {
	cfg          Config
	log          *slog.Logger
	clients      *obs.Sampled       // for log lines that proxies cause
	watchMoved   *watchdog.Watchdog // watches the calls that notify streams
	watchPlanned *watchdog.Watchdog // watches Config.Planned and Config.Publishing
	calls        chan func()
	ended        chan struct{}
	resolve      resolver // resolves the source's snapshots; nil after it has panicked
	intake       *intake  // selects the edits that are planned now
	planner      *Planner // nil without a snapshot that can be planned
	proxies      map[*Handle]*Proxy
	newest       *mirror.Snapshot // resolved, without the excluded records
	good         *mirror.Snapshot // the newest completely planned snapshot; nil before the first one

	config        debounce
	pending       Pending // edits for the configuration path
	endpoints     edge
	endpointEdits Pending // edits for the fast path
	noisy         noisy
	spans         [2]model.Span // revisions of the waiting edits, by path
	inProgress    *inProgress   // the unfinished plan of configuration; nil between plans
	turn          time.Duration // see maxTurn

	opening map[model.Key]chan struct{} // Secrets being opened; closed after success or failure
	failed  map[model.Key]failure       // Secrets whose last attempt failed

	access        *access.Memory
	nextAuthorise time.Time                       // when authorise has to be called again
	rightQueries  chan struct{}                   // limits concurrent queries to the Authoriser
	deciding      map[view.Identity]chan struct{} // closed when the right of the identity is known

	left []departed // oldest first

	waiting    []waiter     // oldest first
	joinQueues []*joinQueue // joining proxies by namespace, in the order of turns

	excluded map[model.Key]blame
	excludes bool                            // records are or were excluded, so newest is not the source's snapshot
	searched time.Time                       // time of the last search for faulty records that a join caused
	faulty   map[view.Identity]time.Time     // times at which calls of identities made the planner panic; see callFor
	setAside atomic.Pointer[[]Problem]       // the problems of the excluded records
	latest   atomic.Pointer[mirror.Snapshot] // a copy of newest for other goroutines
	fault    func(*input.Input, view.Scope)  // lets tests inject panics, see input.Input.Fault
	resolver func() resolver                 // creates a resolver; tests replace it

	checking  atomic.Bool
	reports   reports
	counts    patchCounts
	found     memo[[]Problem]
	counted   memo[[]PatchCount]
	edition   atomic.Int64 // incremented by each action that may change the plan
	unchanged bool         // the current call changes nothing
	revision  atomic.Int64
	notified  atomic.Int64
}

// departed is a proxy that has left, and the time until which its view is retained.
type departed struct {
	handle *Handle
	until  time.Time
}

// Proxy is one client that joined a Loop. All its methods are safe for any goroutine.
type Proxy struct {
	*Handle
	loop  *Loop
	moved func(Path)
	fault atomic.Bool // the proxy's view cannot be planned any more
	asked atomic.Bool // the proxy has requested the name table
}

// NewLoop validates a configuration and returns a loop, which Run starts. The error names a missing Source, or a
// negative DebounceAfter, DebounceMax or Coalesce.
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
		opening: map[model.Key]chan struct{}{}, failed: map[model.Key]failure{}, excluded: map[model.Key]blame{},
		intake: newIntake(cfg.Room), faulty: map[view.Identity]time.Time{},
		access: access.NewMemory(cfg.Access), rightQueries: make(chan struct{}, maxRightQueries), deciding: map[view.Identity]chan struct{}{},
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

// Run plans until the context ends, and returns the context's error. It must not be called twice. Panics of the planner
// are handled (rescue.go).
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
		took := l.applyNewest(box) // a joining proxy gets all changes that the source published before the join
		l.unchanged = false
		l.piece(call)
		acted = acted || took || !l.unchanged
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
		if l.inProgress != nil {
			calls = nil // calls must not see a half-planned state
			l.applyNewest(box)
		}
		// The loop handles one of five events at a time.
		acted = true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-box.Ready():
			l.applyNewest(box)
		case call := <-calls:
			acted = false
			handle(call)
			for began := time.Now(); len(l.joinQueues) > 0 && time.Since(began) < l.turn && l.callWaits(handle); {
			}
		case <-timer.C:
		case <-check:
			l.check()
		}
	}
}

// piece runs a piece of work, and observes how long it blocks the loop.
func (l *Loop) piece(f func()) {
	began := time.Now()
	f()
	obs.PlanPiece.Observe(time.Since(began).Seconds())
}

// callWaits handles one more call. The result is false if no call waits. Run uses callWaits while joins are planned.
// Without it, Run would handle only one call between two pieces of that planning.
func (l *Loop) callWaits(handle func(call func())) bool {
	select {
	case call := <-l.calls:
		handle(call)
		return true
	default:
		return false
	}
}

// forget releases the views of proxies that left longer than Linger ago. It returns the time until the next release, or
// an hour if no view waits for its release.
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

// notify publishes the revision, and calls Proxy.moved for each proxy in the list.
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

// updateGauges updates the metrics of the plan's size.
func (l *Loop) updateGauges() {
	st, s := l.planner.Stats(), l.planner.Snapshot()
	for layer, n := range map[string]int{"scope": st.Scopes, "variant": st.Variants, "workload": st.Workloads, "overlay": st.Overlays} {
		obs.Views.WithLabelValues(layer).Set(float64(n))
	}
	obs.Services.Set(float64(s.Len(model.KindService) + s.Len(model.KindServiceEntry)))
	obs.VirtualServices.Set(float64(s.Len(model.KindVirtualService)))
	l.revision.Store(l.planner.Revision())
}

// check plans one view from scratch, in another goroutine, and compares it with the maintained plan. It does nothing
// while edits wait or another check runs.
func (l *Loop) check() {
	if l.planner == nil || l.inProgress != nil || l.pending.Len() > 0 || l.endpointEdits.Len() > 0 || l.checking.Load() {
		return
	}
	for h := range l.proxies { // a random one, since maps have random order
		snapshot, have, subscribed := l.newest, h.Set(), l.planner.secrets.Copy(h.View().Secrets)
		l.checking.Store(true)
		go func() {
			defer l.checking.Store(false)
			obs.OracleChecks.Inc()
			_ = l.guarded(func() {
				want := freshFor(input.New(snapshot, l.cfg.Pool, l.cfg.Cluster), *h.Node, subscribed, have.Names != nil)
				if bad := compare(have, want); len(bad) > 0 {
					obs.OracleFailures.Inc()
					l.log.Error("the incremental plan differs from a plan made from scratch",
						obs.KeyProxy, h.Node.ID, obs.KeyRevision, snapshot.Revision(), obs.KeyName, bad)
				}
			})
		}()
		return
	}
}

// Refresh waits until the plan includes all changes that the source had published before the call. After Refresh, the
// result of Set includes these changes. The error is the context's, an error after a panic, or an error because the
// loop has ended.
func (p *Proxy) Refresh(ctx context.Context) error { return p.loop.settle(ctx) }

// Leave removes the proxy from the loop, which then stops calling the function moved of Join. The view is retained for
// Config.Linger. Further calls have no effect.
func (p *Proxy) Leave() {
	_ = p.loop.call(context.Background(), func() { // fails only after the loop's end
		delete(p.loop.proxies, p.Handle)
		p.loop.left = append(p.loop.left, departed{p.Handle, time.Now().Add(p.loop.cfg.Linger)})
	})
}

// Err returns nil, or ErrUnplannable if the proxy's view cannot be planned any more. The proxy's set stays unchanged
// from then on, and the function moved of Join is called to notify the stream. Err never blocks.
func (p *Proxy) Err() error {
	if p.fault.Load() {
		return ErrUnplannable
	}
	return nil
}

// Namespace returns the proxy's namespace.
func (p *Proxy) Namespace() string { return p.Node.Namespace }

// Revision returns the store's revision at which all views are complete, or 0 without a snapshot. It never blocks.
func (l *Loop) Revision() int64 { return l.revision.Load() }

// Notified returns a revision of the store, or 0 without a snapshot. All streams whose sets changed up to this revision
// have been notified. It never blocks.
func (l *Loop) Notified() int64 { return l.notified.Load() }

// Problems returns the problems of Planner.Problems, of resolving, and of records that are left out for lack of memory.
// Each problem is listed once, and the list is sorted by object. Builders run in the caller's goroutine, so the loop
// continues meanwhile. The list is cached until the plan changes, and the caller must not change it. If the plan has
// changed, a caller may wait for three times the duration of the last computation before the list is computed again.
// Without a snapshot the list is empty. After the loop's end it may be empty.
func (l *Loop) Problems() []Problem {
	return l.found.get(l.edition.Load(), func() ([]Problem, int64) {
		q, edition := problemSources{}, int64(0)
		l.inspect(func() {
			edition = l.edition.Load()
			if l.planner != nil {
				q = l.planner.problemSources(nil)
				q.found = append(q.found, input.Problems{"": l.intake.room.problems()})
				if l.resolve != nil {
					q.found = append(q.found, input.Problems{"": l.resolve.Problems()})
				}
			}
		})
		all, _ := l.reports.answer(context.Background(), q) // this context does not end
		return all, edition
	})
}

// Stats returns the numbers of shared layers, views and proxies. It returns the zero Stats without a snapshot and after
// the loop's end.
func (l *Loop) Stats() (st Stats) {
	l.inspect(func() {
		if l.planner != nil {
			st = l.planner.Stats()
		}
	})
	return st
}

// Explain returns the proxy's present set, and the result of Planner.Explain for a resource of this set. The result
// specs is nil if the proxy has no such resource. Both results are nil after a panic and after the loop's end.
func (l *Loop) Explain(p *Proxy, t xds.Type, name string) (set *manifest.Set, specs []any) {
	l.inspect(func() { set, specs = p.Set(), l.planner.Explain(p.Handle, t, name) })
	return set, specs
}
