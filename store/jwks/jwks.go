// Package jwks fetches the keys that verify tokens (RequestAuthentication, jwksUri and issuer). Only the leader fetches
// them. It fetches them again when they may have changed, and emits them to the ingester. The last good keys stay in
// use while a server fails or sends something else.
//
// Owns: fetched/ in etcd (the leader), and the objects with the keys of a source (normal.KeysID). Reads: the sources
// that the ingester needs. Never: fetches others; is called by planning or pushing; invents a key.
package jwks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Bounds. Sources of one namespace that never answer do not delay those of others.
const (
	MostOfNamespace     = 64 // sources of one namespace that are fetched
	mostSources         = 4096
	parallel            = 16 // concurrent fetches
	parallelOfNamespace = 2
)

// Pauses after a failure, doubled from the first to the last while it continues.
const (
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
)

// Refresh is the default life of keys (Istio's default, PILOT_JWT_PUB_KEY_REFRESH_INTERVAL).
const Refresh = 20 * time.Minute

// Problem is a problem of a source, or of a namespace with too many sources.
type Problem struct {
	ID      object.ID // of the source's object, without a namespace; or of a namespace, without a name
	Message string
}

// Config configures New.
type Config struct {
	Fetch   func(ctx context.Context, s normal.KeySource) (keys string, err error) // Fetcher.Fetch
	Refresh time.Duration                                                          // life of keys
	Emit    func([]object.Event)
	Log     *slog.Logger
}

// Leader fetches keys while this process leads. Its methods may be called from any goroutine.
type Leader struct {
	Config
	wake chan struct{} // capacity 1: other sources are needed

	mu    sync.Mutex // a leaf: guards what follows
	ids   []object.ID
	whole bool

	problems atomic.Pointer[[]Problem]
}

// New returns a Leader that fetches nothing yet.
func New(c Config) *Leader { return &Leader{Config: c, wake: make(chan struct{}, 1)} }

// Origin returns the origin of the emitted objects.
func Origin() origin.Origin { return origin.New("", origin.JWKS) }

// Need sets the objects that are needed from now on, sorted. whole means that every source has emitted everything, so
// that ids is complete.
func (l *Leader) Need(ids []object.ID, whole bool) {
	l.mu.Lock()
	l.ids, l.whole = ids, whole
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Problems returns the problems of the present term.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// term is the state of one term.
type term struct {
	*Leader
	store   *kv.Store
	epoch   kv.Epoch
	sources map[normal.KeySource]*source
	stored  map[normal.KeySource]string               // the content of etcd
	emitted map[normal.KeySource]map[object.ID]string // JSON of the objects that were emitted
	changed map[normal.KeySource]bool                 // sources whose changes are not stored and emitted yet
	left    map[string]int                            // number of sources of a namespace beyond the bounds
	whole   bool
	synced  bool
	running int
	by      map[string]int // running fetches of each namespace
	answers chan answer
}

// source is one key set that is needed.
type source struct {
	ids    []object.ID // objects that need it, by namespace; its fetches count for the first one
	keys   string      // the last good keys; empty: there were none
	asking bool
	due    time.Time
	failed int   // failures since the last success
	wrong  error // why keys are not from the server's last response; nil: they are, or there was no fetch
}

type answer struct {
	of      normal.KeySource
	charged string // the namespace
	keys    string
	err     error
}

// Run is one term. It returns when ctx ends or another process leads.
func (l *Leader) Run(ctx context.Context, store *kv.Store, epoch kv.Epoch) {
	defer l.problems.Store(nil)
	ctx, cancel := context.WithCancel(ctx)
	t := &term{Leader: l, store: store, epoch: epoch, sources: map[normal.KeySource]*source{},
		emitted: map[normal.KeySource]map[object.ID]string{}, changed: map[normal.KeySource]bool{},
		by:      map[string]int{},
		answers: make(chan answer, parallel)}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	if !t.load(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	t.needed()
	for {
		wait := t.fetchDue(ctx, &asking, time.Now())
		if err := t.publish(ctx); errors.Is(err, kv.ErrDeposed) {
			return
		} else if err != nil && ctx.Err() == nil {
			l.Log.Warn("fetched key sets cannot be stored in etcd, and are not used until they are; trying again", obs.KeyError, err)
			wait = min(wait, time.Second)
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
			t.needed()
		case a := <-t.answers:
			t.applyAnswer(a, time.Now())
			for range len(t.answers) { // all responses that wait are stored together
				t.applyAnswer(<-t.answers, time.Now())
			}
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// inTurn orders objects by their position within their namespace: the first of each namespace, the second of each, and
// so on. rank holds the positions.
func inTurn(ids []object.ID) (ordered []object.ID, rank map[object.ID]int) {
	rank, count := map[object.ID]int{}, map[string]int{}
	for _, id := range ids {
		rank[id] = count[id.Namespace]
		count[id.Namespace]++
	}
	ordered = slices.Clone(ids)
	slices.SortStableFunc(ordered, func(a, b object.ID) int { return cmp.Compare(rank[a], rank[b]) })
	return ordered, rank
}

// needed applies the objects of the last Need, within the bounds of each namespace and of all.
func (t *term) needed() {
	t.mu.Lock()
	ids, whole := t.ids, t.whole || t.Leader.whole
	t.mu.Unlock()
	t.whole = whole
	t.left = map[string]int{}
	of := map[normal.KeySource][]object.ID{}
	ids, rank := inTurn(ids)
	for _, id := range ids {
		where, err := normal.ParseKeySource(id.Name)
		if err != nil {
			continue // unreachable: normal makes these names
		}
		if rank[id] >= MostOfNamespace || len(of) >= mostSources && of[where] == nil {
			t.left[id.Namespace]++
			continue
		}
		of[where] = append(of[where], id)
	}
	for where, ids := range of {
		s := t.sources[where]
		if s == nil {
			s = &source{keys: t.stored[where]}
			t.sources[where] = s
		}
		t.changed[where] = t.changed[where] || !slices.Equal(s.ids, ids)
		s.ids = ids
	}
	if !whole {
		return // sources that seem unnecessary now may still become needed
	}
	for where := range t.sources {
		if of[where] == nil {
			delete(t.sources, where) // a late response is dropped
			t.changed[where] = true
		}
	}
	for where := range t.stored {
		if of[where] == nil {
			t.changed[where] = true
		}
	}
}

// fetchDue begins to fetch the key sets that are due, and returns the time until the next one is.
func (t *term) fetchDue(ctx context.Context, asking *sync.WaitGroup, now time.Time) (wait time.Duration) {
	wait = time.Hour
	inOrder := slices.SortedFunc(maps.Keys(t.sources), func(a, b normal.KeySource) int {
		return cmp.Or(t.sources[a].due.Compare(t.sources[b].due), cmp.Compare(a.String(), b.String()))
	})
	for _, where := range inOrder {
		s := t.sources[where]
		if s.asking {
			continue
		}
		if left := s.due.Sub(now); left > 0 {
			return min(wait, left)
		}
		namespace := s.ids[0].Namespace
		if t.running == parallel {
			return wait // a response will wake the loop
		}
		if t.by[namespace] == parallelOfNamespace {
			continue // a response will wake the loop
		}
		s.asking = true
		t.by[namespace]++
		t.running++
		asking.Go(func() {
			keys, err := t.Fetch(ctx, where)
			select {
			case t.answers <- answer{where, namespace, keys, err}:
			case <-ctx.Done():
			}
		})
	}
	return wait
}

// applyAnswer stores a response.
func (t *term) applyAnswer(a answer, now time.Time) {
	t.running--
	if t.by[a.charged]--; t.by[a.charged] == 0 {
		delete(t.by, a.charged)
	}
	s := t.sources[a.of]
	if s == nil || !s.asking { // the source is not needed any more, or is needed again
		return
	}
	before := s.reason()
	defer func() { t.changed[a.of] = t.changed[a.of] || s.reason() != before }()
	s.asking = false
	if a.err != nil {
		obs.JWKSFailed.Inc()
		if s.wrong == nil {
			t.Log.Warn("a key set cannot be fetched; its last good version stays in use", obs.KeyName, a.of.String(), obs.KeyError, a.err)
		}
		s.wrong = a.err
		s.due = now.Add(jittered(min(firstRetry<<min(s.failed, 16), lastRetry, t.Refresh)))
		s.failed++
		return
	}
	obs.JWKSFetched.Inc()
	t.changed[a.of] = t.changed[a.of] || s.keys != a.keys
	s.keys, s.wrong, s.failed, s.due = a.keys, nil, 0, now.Add(jittered(t.Refresh))
}

// jittered varies a pause by a tenth, so that fetches that began together spread out.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// unfetched is the reason that everybody may read, whatever the cause of a failure. A text for each cause would tell a
// tenant which addresses and ports are open in networks that it does not see.
const unfetched = "it does not answer the control plane with a key set"

// reason returns the public reason for a source without new keys; empty if it has them.
func (s *source) reason() string {
	if s.wrong == nil {
		return ""
	}
	return unfetched
}

// maxProblems bounds the sources in problems; further ones are counted.
const maxProblems = 20

// report publishes the sources that cannot be fetched, and the numbers of those beyond the bounds.
func (t *term) report() {
	var problems []Problem
	for _, s := range t.sources {
		if s.wrong == nil {
			continue
		}
		stands := "tokens that they would verify are refused"
		if s.keys != "" {
			stands = "those that were fetched last stand"
		}
		id := s.ids[0]
		id.Namespace = "" // the reason is for operators: it describes networks that tenants do not see
		problems = append(problems, Problem{id, fmt.Sprintf("the keys cannot be fetched: %s; %s", problem.Cause(s.wrong), stands)})
	}
	slices.SortFunc(problems, func(a, b Problem) int { return a.ID.Compare(b.ID) })
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], Problem{object.ID{Kind: "KeySet", Origin: Origin()},
			fmt.Sprintf("%d more key sets cannot be fetched", more)})
	}
	for _, namespace := range slices.Sorted(maps.Keys(t.left)) {
		problems = append(problems, Problem{object.ID{Kind: "KeySet", Origin: Origin(), Namespace: namespace},
			fmt.Sprintf("%d key sets of namespace %s are not fetched, which refuses tokens: %d of a namespace are at most, those that come first",
				t.left[namespace], namespace, MostOfNamespace)})
	}
	t.problems.Store(&problems)
}
