package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/cmd/navarchd/delivered"
	"navarch.io/navarch/push/acknowledged"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead/promoted"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

// objectStatus maintains the status of Istio's objects in the config cluster while this process leads
// (PILOT_ENABLE_STATUS).
type objectStatus struct {
	writers map[status.Kind]*status.Writer[unstructured.Unstructured]
	origin  origin.Origin // of the config cluster
	store   *kv.Store
	ingest  settler
	listed  func(context.Context) ([]object.Problem, error) // all problems of the ingester
	found   *problems.Collector
	acks    *acknowledged.Collector
	log     *slog.Logger

	committed atomic.Int64 // newest revision that this process wrote

	mu      sync.Mutex // guards objects
	objects *delivered.Objects
}

// settler is the part of the ingester that objectStatus uses.
type settler interface {
	Settle(context.Context) error
	Settled() bool
}

// newObjectStatus makes an objectStatus without sending a request. The parameter from is the origin of the objects. All
// writes to Kubernetes share limit. Errors name flags.
func newObjectStatus(i *ingester, c *config, from origin.Origin, writes *promoted.Writer, limit *rate.Limiter) (*objectStatus, error) {
	s := &objectStatus{writers: map[status.Kind]*status.Writer[unstructured.Unstructured]{},
		origin: from, store: i.store, ingest: i.loop, listed: i.loop.EveryProblem,
		found: i.found, acks: acknowledged.NewCollector(i.log), log: i.log, objects: delivered.New()}
	for _, kind := range status.IstioKinds {
		api, err := status.NewIstio(c.kubeconfig, c.env.watchOnly, kind)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
		}
		s.writers[kind] = status.New(status.Config[unstructured.Unstructured]{API: api,
			Kind: kind.Kind, Until: writes.Until, Limit: limit, Log: i.log})
	}
	return s, nil
}

// wrote records the revision of a batch that this process has written.
func (s *objectStatus) wrote(revision int64) {
	for was := s.committed.Load(); revision > was && !s.committed.CompareAndSwap(was, revision); was = s.committed.Load() {
	}
}

// begin discards the observations of an earlier term.
func (s *objectStatus) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = delivered.New()
}

// observe records the events of the config cluster. It is called before the ingester's loop receives them.
func (s *objectStatus) observe(events []object.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.Take(events, time.Now())
}

// lookEvery is the interval at which a leader updates statuses.
const lookEvery = 500 * time.Millisecond

// lead maintains the statuses during one term of this process as leader.
func (s *objectStatus) lead(ctx context.Context, epoch kv.Epoch) {
	var parts sync.WaitGroup
	defer parts.Wait()
	for _, w := range s.writers {
		defer w.Want(nil)
		parts.Go(func() { _ = w.Run(ctx, epoch.Revision) }) // its error is the context's
	}
	parts.Go(func() {
		if err := s.acks.Run(ctx, s.store, epoch); err != nil {
			s.log.Error("the replicas' answers about acknowledged revisions are not collected", obs.KeyError, err)
		}
	})
	fleets, err := member.Follow(ctx, s.store, s.log)
	if err != nil {
		s.log.Error("the status of objects is not written: the replicas are not known", obs.KeyError, err)
		return
	}
	t := term{objectStatus: s, epoch: epoch}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case fleet, open := <-fleets:
			if !open {
				return
			}
			t.takeFleet(fleet)
		case now := <-tick.C:
			t.update(ctx, now)
		case <-ctx.Done():
			return
		}
	}
}

// term is the state of one term.
type term struct {
	*objectStatus
	epoch    kv.Epoch
	known    bool // the fleet is known
	replicas []string
	before   uint64 // number of events observed before the last update
	stored   uint64 // number of observed events that the store has
	asked    int64  // newest revision for which await has requested answers

	last struct { // inputs of the last reports
		taken    uint64
		stored   uint64
		reached  int64
		problems []object.Problem
		found    []problems.Found
		answers  *acknowledged.Answers
	}
	began bool
}

// takeFleet records the replicas that serve proxies. Warming replicas do not serve proxies yet.
func (t *term) takeFleet(fleet member.Fleet) {
	t.known, t.replicas = true, t.replicas[:0]
	for _, m := range fleet.Members {
		if m.State != member.Warming {
			t.replicas = append(t.replicas, m.Name)
		}
	}
}

// update sets the target statuses if an input has changed, or if a status changes by the passing of time. It sets
// nothing while an input is unknown.
func (t *term) update(ctx context.Context, now time.Time) {
	t.settle(ctx)
	answers := t.acks.Now()
	if answers == nil || !t.known || !t.found.Collected() {
		return // an unknown input must not count as empty
	}
	t.await(ctx)
	reached, _ := answers.Acknowledged(t.replicas, t.asked)
	listed, err := t.listed(ctx)
	if err != nil {
		return
	}
	found, _ := t.found.All()
	t.mu.Lock()
	defer t.mu.Unlock()
	taken, due := t.objects.Taken(), t.objects.Due()
	l := &t.last
	if t.began && l.taken == taken && l.stored == t.stored && l.reached == reached &&
		l.answers == answers && same(l.problems, listed) && same(l.found, found) &&
		(due.IsZero() || now.Before(due)) {
		return
	}
	facts := delivered.Facts{Problems: listed, Refused: answers.Refused, Acknowledged: reached}
	for _, p := range found {
		facts.Found = append(facts.Found, p.Problem)
	}
	reports := t.objects.Reports(now, facts)
	if reports == nil {
		return
	}
	t.began = true
	l.taken, l.stored, l.reached, l.problems, l.found, l.answers = taken, t.stored, reached, listed, found, answers
	for kind, w := range t.writers {
		want := make(map[status.Key]status.Desired[unstructured.Unstructured], len(reports[kind]))
		for key, r := range reports[kind] {
			want[key] = r.Desired(key.Namespace)
		}
		w.Want(want)
	}
}

// same reports whether two lists are equal. It is fast if they share memory.
func same[E comparable](a, b []E) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// settle determines whether the store has the events that were observed before the last update, and at which revision.
// If so, the ingester has also compared the objects of these events with each other.
func (t *term) settle(ctx context.Context) {
	taken := t.before
	t.mu.Lock()
	t.before = t.objects.Taken()
	t.mu.Unlock()
	if t.began && taken == t.stored {
		return
	}
	for range 2 { // Settled may be outdated after one Settle, but not after two
		if t.ingest.Settle(ctx) != nil {
			return
		}
	}
	if !t.ingest.Settled() {
		return
	}
	revision := t.committed.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.objects.Stored(taken, revision)
	t.stored = taken
}

// await requests the replicas' answers about the newest revision that an object waits for.
func (t *term) await(ctx context.Context) {
	t.mu.Lock()
	revision := t.objects.Awaited()
	t.mu.Unlock()
	if t.asked = max(t.asked, revision); revision == 0 {
		return
	}
	if err := t.acks.Await(ctx, t.objectStatus.store, t.epoch, revision); err != nil && ctx.Err() == nil {
		t.log.Warn("replicas cannot be asked what their proxies have acknowledged; trying again", obs.KeyError, err)
	}
}

// withdraw deletes the question of an earlier leader about acknowledged revisions, so that replicas stop answering it.
// It runs if this leader does not maintain statuses.
func (i *ingester) withdraw(ctx context.Context, epoch kv.Epoch) {
	if err := acknowledged.Withdraw(ctx, i.store, epoch, i.log); err != nil {
		i.log.Error("an earlier leader's question about acknowledged revisions cannot be deleted, so replicas go on answering it",
			obs.KeyError, err)
	}
}

// problems returns the problems of writing statuses during this process's term as leader.
func (s *objectStatus) problems() (all []object.Problem) {
	for kind, w := range s.writers {
		for _, p := range w.Problems() {
			id := object.ID{Origin: s.origin, Group: kind.Group, Kind: kind.Kind, Namespace: p.Key.Namespace, Name: p.Key.Name}
			if id.Name == "" {
				id.Name = "of all namespaces"
			}
			all = append(all, object.Problem{ID: id, Location: "Kubernetes",
				Field: "status", Code: problem.Pending, Severity: problem.Warning, Message: p.Message})
		}
	}
	slices.SortFunc(all, func(a, b object.Problem) int { return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(a.Message, b.Message)) })
	return all
}

// refusals returns the objects that proxies of this replica refuse. The result has the sources of withheld versions
// (blamed). It also has the sources of versions that proxies in the namespace of the source refused (culprits). Thus
// one identity cannot affect the status of objects in other namespaces.
func (r *replica) refusals() (all []acknowledged.Refusal) {
	all = blamed(r.server.Withheld())
	if latest := r.refused.Load(); latest != nil {
		all = append(all, *latest...)
	}
	return all
}

// blamed returns the likely cause of each withheld version of a resource: the first object from which the version was
// made. A version that is withheld from one identity counts only if this object is in the namespace of that identity.
func blamed(all []quarantine.Withheld) (out []acknowledged.Refusal) {
	for _, w := range all {
		if len(w.Objects) > 0 && (w.Identity == "" || w.Objects[0].Key.Namespace == w.Namespace) {
			out = append(out, acknowledged.Refusal{Object: w.Objects[0].Key, Text: w.Text})
		}
	}
	return out
}

// culprits returns the likely cause of each refusal: the first object from which the refused version was made. Refusals
// by proxies outside of this object's namespace are left out.
func culprits(all []serve.Refusal) *[]acknowledged.Refusal {
	out := []acknowledged.Refusal{}
	for _, r := range all {
		if len(r.Objects) > 0 && r.Objects[0].Key.Namespace == r.Namespace {
			out = append(out, acknowledged.Refusal{Object: r.Objects[0].Key, Text: r.Text})
		}
	}
	return &out
}

// acknowledges returns the loop that reports this replica's acknowledged revisions to the leader. name is the name of
// this process.
func (r *replica) acknowledges(name string) *acknowledged.Loop {
	return acknowledged.New(acknowledged.Config{Name: name, Notified: r.planner.Notified, Refused: r.refusals, Log: r.log,
		Unsettled: func() func() int { return r.server.Unsettled(time.Now()).Left }})
}
