// Package jwks fetches the key sets that verify tokens (RequestAuthentication, jwksUri and issuer). Only navarchd's
// leader fetches key sets. It fetches each key set again after a fixed interval, and emits the keys as an object to
// the ingester, which converts objects to records. The last good keys stay in use while a server fails or sends
// something else.
//
// Owns: the folder fetched/ in etcd, and the emitted objects with key sets (normal.KeysID).
// Reads: the list of key sets that the ingester needs.
// Never: fetches other URLs; runs while configuration is planned or pushed; creates a key.
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
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Bounds. Servers of one namespace that never answer do not delay the fetches of other namespaces.
const (
	MostOfNamespace = 64   // key sources of one namespace that are fetched
	mostSources     = 4096 // key sources of all namespaces
	parallel        = 16   // concurrent fetches
	// parallelOfNamespace bounds the concurrent fetches for one namespace. A failed fetch counts until its answer is
	// sent (term.ask).
	parallelOfNamespace = 2
)

// Pauses after a failed fetch. The pause doubles from firstRetry to lastRetry while fetches fail, but is at most
// Config.Refresh.
const (
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
)

// Refresh is the default of Config.Refresh (Istio's default, PILOT_JWT_PUB_KEY_REFRESH_INTERVAL).
const Refresh = 20 * time.Minute

// Problem describes a key source that cannot be fetched, or a namespace with too many sources. One more Problem may
// state the number of sources that are not listed.
type Problem struct {
	// ID has the name of the source and no namespace, or the namespace and no name. The Problem with the number of
	// further sources has neither.
	ID      object.ID
	Message string
}

// Config configures New. All fields must be set.
type Config struct {
	Fetch   func(ctx context.Context, s normal.KeySource) (keys string, err error) // usually Fetcher.Fetch; called concurrently
	Refresh time.Duration                                                          // interval of fetches; above 0
	Emit    func([]object.Event)                                                   // receives events sorted by ID; the event Synced is last
	Log     *slog.Logger
}

// Leader fetches key sets while this process leads. Its methods may be called from any goroutine, but only one Run at a
// time.
type Leader struct {
	Config
	wake chan struct{} // capacity 1: Need was called

	mu    sync.Mutex // guards ids and whole; no other lock is taken while it is held
	ids   []object.ID
	whole bool

	problems atomic.Pointer[[]Problem]
}

// New returns a Leader that fetches nothing yet.
func New(c Config) *Leader { return &Leader{Config: c, wake: make(chan struct{}, 1)} }

// Origin returns the origin of the emitted objects.
func Origin() origin.Origin { return origin.New("", origin.JWKS) }

// Need sets the IDs of the objects that are needed from now on (normal.KeysID), sorted. The caller must not change ids
// afterwards. The parameter whole reports that ids is complete, since every source of configuration has emitted its
// objects. Once ids was complete in a term, key sets that are not needed are deleted.
func (l *Leader) Need(ids []object.ID, whole bool) {
	l.mu.Lock()
	l.ids, l.whole = ids, whole
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Problems returns the problems of the present term. The result is nil without problems, and while this process does
// not lead. At most 20 sources are listed, sorted by ID; a further Problem has the number of the rest. The problems of
// namespaces follow. The caller must not change the list.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// term is the state of one term (period of leadership).
type term struct {
	*Leader
	store   *kv.Store
	epoch   kv.Epoch
	sources map[normal.KeySource]*source
	stored  map[normal.KeySource]string               // the key sets in etcd
	emitted map[normal.KeySource]map[object.ID]string // JSON of the objects that were emitted
	changed map[normal.KeySource]bool                 // sources with changes that are not stored and emitted yet
	left    map[string]int                            // by namespace, the number of needed objects beyond the bounds
	whole   bool                                      // Need was complete in this term
	synced  bool                                      // Synced was emitted
	running int                                       // running fetches
	by      map[string]int                            // fetches of each namespace that are not answered
	fetched chan struct{}                             // capacity parallel: a running fetch has ended
	answers chan answer
}

// source is the state of one needed key set.
type source struct {
	ids    []object.ID // its objects, one per namespace
	keys   string      // the last good keys, or those that an earlier leader stored; empty: no keys yet
	asking bool        // a fetch is not answered
	due    time.Time   // time of the next fetch
	failed int         // failures since the last success
	wrong  error       // error of the last fetch; nil: it succeeded, or there was no fetch
}

type answer struct {
	of      normal.KeySource
	charged string // the namespace that the fetch counts for
	keys    string
	err     error
}

// Run fetches key sets for one term of leadership, and returns after ctx ends or another process leads. The parameter
// epoch identifies the term. Failures of etcd are logged and retried. A lost election is detected at the next write.
func (l *Leader) Run(ctx context.Context, store *kv.Store, epoch kv.Epoch) {
	defer l.problems.Store(nil)
	ctx, cancel := context.WithCancel(ctx)
	t := &term{Leader: l, store: store, epoch: epoch, sources: map[normal.KeySource]*source{},
		emitted: map[normal.KeySource]map[object.ID]string{}, changed: map[normal.KeySource]bool{},
		by:      map[string]int{},
		fetched: make(chan struct{}, parallel), answers: make(chan answer, parallel)}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	if !t.load(ctx) {
		return
	}
	t.needed()
	for {
		wait := t.fetchDue(ctx, &asking, time.Now())
		if err := t.publish(ctx); errors.Is(err, kv.ErrDeposed) {
			return
		} else if err != nil && ctx.Err() == nil {
			l.Log.Warn("fetched key sets cannot be stored in etcd, and are not used until they are stored; trying again", obs.KeyError, err)
			wait = min(wait, time.Second)
		}
		if !t.await(ctx, wait) {
			return
		}
	}
}

// await waits for events, at most for the given time, and applies all that have arrived, so that one publish stores all
// responses. It returns false after ctx ends.
func (t *term) await(ctx context.Context, wait time.Duration) bool {
	select {
	case <-t.wake:
		t.needed()
	case <-t.fetched:
		t.running--
	case a := <-t.answers:
		t.applyAnswer(a, time.Now())
	case <-time.After(wait):
	case <-ctx.Done():
		return false
	}
	for range len(t.fetched) {
		<-t.fetched
		t.running--
	}
	for range len(t.answers) {
		t.applyAnswer(<-t.answers, time.Now())
	}
	return true
}

// inTurn orders objects by their position within their namespace: the first of each namespace, the second of each, and
// so on. The result rank maps each object to its position, from 0.
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

// needed applies the arguments of the last Need, within the bounds for each namespace and for all namespaces.
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

// fetchDue starts the fetches that are due, and returns the time until the next one is due, at most an hour. A fetch
// counts for the namespace with the fewest fetches among those that need the source. So a namespace cannot delay
// another namespace's source by naming the same source.
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
		if t.running == parallel {
			return wait // the end of a fetch will wake the loop
		}
		namespace := slices.MinFunc(s.ids, func(a, b object.ID) int {
			return cmp.Compare(t.by[a.Namespace], t.by[b.Namespace])
		}).Namespace
		if t.by[namespace] == parallelOfNamespace {
			continue // a response will wake the loop
		}
		s.asking = true
		t.by[namespace]++
		t.running++
		asking.Go(func() { t.ask(ctx, where, namespace) })
	}
	return wait
}

// ask fetches a key set, and sends the result to t.answers. It sends a failure only at the end of the rule's timeout.
// Otherwise a refused connection would fail sooner than a silent address, and the author of a RequestAuthentication
// would learn which ports are closed, also from the time of the namespace's next fetch. Fetches of other namespaces may
// begin as soon as this one has ended.
func (t *term) ask(ctx context.Context, where normal.KeySource, namespace string) {
	end := time.Now().Add(limitOf(where.Timeout))
	keys, err := t.Fetch(ctx, where)
	t.fetched <- struct{}{} // does not block, since at most `parallel` fetches are running
	if err != nil {
		_ = loop.Pause(ctx, time.Until(end))
	}
	select {
	case t.answers <- answer{where, namespace, keys, err}:
	case <-ctx.Done():
	}
}

// applyAnswer applies the result of a fetch to its source, and sets the time of the next fetch.
func (t *term) applyAnswer(a answer, now time.Time) {
	if t.by[a.charged]--; t.by[a.charged] == 0 {
		delete(t.by, a.charged)
	}
	s := t.sources[a.of]
	if s == nil || !s.asking { // the source is no longer needed, or was dropped and is needed again
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

// jittered varies a pause by up to a tenth, so that fetches that began together spread out.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// unfetched is the public reason of every failed fetch. A text for each cause would tell a tenant which addresses and
// ports are open in networks that it does not see.
const unfetched = "it does not answer the control plane with a key set"

// reason returns the public reason for a failure of the last fetch. It is empty if the fetch succeeded, or if there was
// no fetch.
func (s *source) reason() string {
	if s.wrong == nil {
		return ""
	}
	return unfetched
}

// maxProblems is the maximum number of sources in the list of problems; further ones are counted.
const maxProblems = 20

// report publishes the sources that cannot be fetched, and for each namespace the number of sources beyond the bounds.
func (t *term) report() {
	var problems []Problem
	for _, s := range t.sources {
		if s.wrong == nil {
			continue
		}
		stands := "tokens that need them are refused"
		if s.keys != "" {
			stands = "the keys that were fetched last stay in use"
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
			fmt.Sprintf("%d key sets of namespace %s are not fetched, so tokens are refused: the first %d of a namespace are fetched",
				t.left[namespace], namespace, MostOfNamespace)})
	}
	t.problems.Store(&problems)
}
