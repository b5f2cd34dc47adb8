// Package jwks fetches the keys that tokens are verified with (RequestAuthentication, jwksUri and issuer). The leader alone asks for them,
// again when they may have changed, and emits them to the ingester. The last good keys stay in use while a server does not answer, and where it
// answers with something else.
//
// Owns: fetched/ in etcd (the leader), and the objects that say which keys a source has (normal.KeysID).  Reads: which sources the ingester
// needs.  Never: asks for others; is called by planning or pushing; makes up a key.
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

// Bounds. A namespace whose sources never answer holds up no other.
const (
	MostOfNamespace     = 64 // sources of one namespace that are fetched
	mostSources         = 4096
	parallel            = 16 // that are asked at once
	parallelOfNamespace = 2
)

// Pauses after a failure: doubled from the first to the last, as long as it fails.
const (
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
)

// Refresh is how long keys are good (Istio's default, PILOT_JWT_PUB_KEY_REFRESH_INTERVAL).
const Refresh = 20 * time.Minute

// Problem is what is wrong with a source, or with how many a namespace has.
type Problem struct {
	ID      object.ID // of the object of the source, without its namespace; or of a namespace, without a name
	Message string
}

// Config is what New needs.
type Config struct {
	Fetch   func(ctx context.Context, s normal.KeySource) (keys string, err error) // Fetcher.Fetch
	Refresh time.Duration                                                          // how long keys are good
	Emit    func([]object.Event)
	Log     *slog.Logger
}

// Leader has keys fetched while this process leads. Its methods may be called from any goroutine.
type Leader struct {
	Config
	wake chan struct{} // one place: other sources are needed

	mu    sync.Mutex // a leaf: guards what follows
	ids   []object.ID
	whole bool

	problems atomic.Pointer[[]Problem]
}

// New fetches nothing yet.
func New(c Config) *Leader { return &Leader{Config: c, wake: make(chan struct{}, 1)} }

// Origin is that of the objects that are emitted.
func Origin() origin.Origin { return origin.New("", origin.JWKS) }

// Need says which objects are needed from now on, sorted; whole: all that there are, since everything was emitted.
func (l *Leader) Need(ids []object.ID, whole bool) {
	l.mu.Lock()
	l.ids, l.whole = ids, whole
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Problems are those of the term that this process leads in.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// term is what one term knows.
type term struct {
	*Leader
	store   *kv.Store
	epoch   kv.Epoch
	sources map[normal.KeySource]*source
	stored  map[normal.KeySource]string               // what etcd has
	emitted map[normal.KeySource]map[object.ID]string // JSON
	changed map[normal.KeySource]bool                 // sources that were not looked at since they changed
	left    map[string]int                            // sources of a namespace that are not fetched
	whole   bool
	synced  bool
	running int
	by      map[string]int // of these, for each namespace
	answers chan answer
}

// source is one key set that is needed.
type source struct {
	ids    []object.ID // that say it, by namespace: the first is charged with asking
	keys   string      // that were good last; empty: none were
	asking bool
	due    time.Time
	failed int   // how often since it was good
	wrong  error // why it is not as the server says now; nil: it is, or nobody has asked
}

type answer struct {
	of      normal.KeySource
	charged string // the namespace
	keys    string
	err     error
}

// Run is one term, until ctx ends or another process leads.
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
		wait := t.ask(ctx, &asking, time.Now())
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
			t.take(a, time.Now())
			for range len(t.answers) { // what was answered meanwhile is stored together
				t.take(<-t.answers, time.Now())
			}
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// inTurn is objects in another order: the first of each namespace, the second of each, and so on; rank is which of its namespace each is.
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

// needed takes over which sources are needed: of each namespace the first, and of all as many of each namespace as there is room for.
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
			continue // nobody but normal makes such an object
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
		return // what is not needed yet may be needed still
	}
	for where := range t.sources {
		if of[where] == nil {
			delete(t.sources, where) // an answer that comes is nobody's
			t.changed[where] = true
		}
	}
	for where := range t.stored {
		if of[where] == nil {
			t.changed[where] = true
		}
	}
}

// ask begins to ask for key sets that are due, and says when the next one is.
func (t *term) ask(ctx context.Context, asking *sync.WaitGroup, now time.Time) (wait time.Duration) {
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
			return wait // an answer comes
		}
		if t.by[namespace] == parallelOfNamespace {
			continue // the same
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

// take takes an answer.
func (t *term) take(a answer, now time.Time) {
	t.running--
	if t.by[a.charged]--; t.by[a.charged] == 0 {
		delete(t.by, a.charged)
	}
	s := t.sources[a.of]
	if s == nil || !s.asking { // it is needed no more, or again
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

// jittered is a pause, a tenth of it more or less, so that what began together does not go on together.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// unfetched is told to everybody of a source that fails, whatever the cause: a text for each cause would tell a tenant which addresses and ports of
// networks that it does not see are open.
const unfetched = "it does not answer the control plane with a key set"

// reason is why a source has no newer keys, as everybody may know it; empty: it has.
func (s *source) reason() string {
	if s.wrong == nil {
		return ""
	}
	return unfetched
}

// maxProblems is how many sources are named that cannot be fetched.
const maxProblems = 20

// report says which sources cannot be fetched, and which are not.
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
		id.Namespace = "" // the reason is for operators: it says what is in networks that tenants do not see
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
