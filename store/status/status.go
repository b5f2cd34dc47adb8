// Package status writes objects to the API server of Kubernetes. Some of these objects are ConfigMaps with root
// certificates and revocation lists, and WorkloadEntries of machines. The others are webhook configurations, Events
// about refused or held objects, and the status of Istio's objects. Callers state the target state of each object
// (Desired). An object that differs from its target state waits in a queue. In the queue, owners with many objects
// alternate with the other owners (Desired.Turn).
//
// Owns: the queue of objects to write, and its notes on other writers of these objects; the annotation EpochAnnotation;
// its own entries in the status of Istio's objects (Report).
// Reads: the objects that it writes, by watches of its own; Events by name; ConfigMaps and ProxyConfigs for its
// callers.
//
// Never: writes while this process does not lead, or with a deadline after the end of its lease; writes an object that
// already has its target state; writes faster than its rate limit; replaces an object without the resourceVersion that
// it has read.
package status

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// Rate is the largest number of objects that a limiter of NewLimit permits in a second.
const Rate = 50

// EpochAnnotation is an annotation of ConfigMaps, WorkloadEntries and webhook configurations that navarchd writes. Its
// value is the epoch in decimal, the number of the term of the leader that last set it.
const EpochAnnotation = "navarch.io/epoch"

// Key identifies an object among those of its kind. Namespace is empty for cluster-scoped kinds.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", for messages. Without a namespace, it returns "/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Desired is the target state of one Kubernetes object.
type Desired[O any] struct {
	Version string // equal exactly for equal target states; an object is compared again after a change of Version
	// Turn is the owner for fair queueing: owners with many pending objects alternate with the others. Objects without
	// an owner share one turn.
	Turn string
	// Draw returns the object to write, or nil if nothing has to be written. The first argument is the existing object,
	// or nil if it is absent. The second argument is the value for EpochAnnotation. Draw must not change the existing
	// object. It is called with a lock held, so it must not block.
	Draw func(there *O, epoch int64) *O
	// Left is called after Draw has returned nil, with the lock held. It returns the reason for which an object that
	// differs from its target is not written, or "" if the object does not differ. The reason becomes a Problem. A nil
	// Left counts as a function that returns "".
	Left func(there *O) string
}

// Version is the resourceVersion of an object as a number
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions). It is 0 for a resourceVersion that
// is not a number.
type Version uint64

// Found is the existing state of an object.
type Found[O any] struct {
	Object  *O      // nil: the object is absent; must not be modified
	Version Version // of the object; for an absent object: of its deletion, or 0 if that is not known
	By      string  // the last writer according to managedFields; may be empty
}

// API reads and writes the objects of one kind.
type API[O any] interface {
	// Follow lists and watches the objects until ctx ends, and then returns the context's error. It passes the objects
	// to the Seen. It calls the function with the reason of each failure, and with nil after each complete list.
	Follow(ctx context.Context, s Seen[O], failed func(error)) error
	// Get reads an object. For an absent object it returns a Found without an Object, and no error. An error means that
	// the request failed, or that the kind is not served.
	Get(ctx context.Context, k Key) (Found[O], error)
	// Write creates an object without a resourceVersion, and replaces an object that has one. It returns the written
	// object. Implementations may restrict or extend these requests. ErrConflict means that an object to create exists,
	// or that an object to replace is absent or has another version. Any other error means that the request failed, or
	// that the kind is not served.
	Write(ctx context.Context, k Key, o *O) (Found[O], error)
}

// Seen receives the existing objects of one kind. The receiver owns the arguments.
type Seen[O any] interface {
	Replace(all map[Key]Found[O]) // a complete list of the objects
	Observe(k Key, f Found[O])    // the present state of one object
}

// ErrConflict means that an object was not written, because the stored object is not in the state that was read.
var ErrConflict = errors.New("somebody else has written it")

// Config configures a Writer.
type Config[O any] struct {
	API  API[O] // not nil
	Kind string // of the objects, for messages
	// Until returns a time up to which this process certainly leads (lead.Elector.Until). An error means that the time
	// is unknown, so nothing is written. Until must not be nil.
	Until    func(context.Context) (time.Time, error)
	Deadline time.Duration // bounds each write and each call of Until; 0: 3 s
	// Limit is a rate limit that several Writers share; nil: this Writer writes at most Rate objects a second.
	Limit *rate.Limiter
	Log   *slog.Logger // not nil
}

// Writer writes the objects of one kind while this process leads. It is safe for concurrent use.
type Writer[O any] struct {
	Config[O]
	wake chan struct{} // capacity 1

	mu         sync.Mutex // guards what follows; nothing blocks under it
	queue      *queue[O]
	unread     string // reason for which the objects cannot be read; empty: they can be read
	complained bool   // the failure of writes was logged
}

// New returns a Writer without target states. It sends no request.
func New[O any](c Config[O]) *Writer[O] {
	c.Deadline = cmp.Or(c.Deadline, 3*time.Second)
	c.Limit = cmp.Or(c.Limit, NewLimit())
	return &Writer[O]{Config: c, wake: make(chan struct{}, 1), queue: newQueue[O](0)}
}

// NewLimit returns a limiter of Rate writes a second, without bursts.
func NewLimit() *rate.Limiter { return rate.NewLimiter(Rate, 1) }

// Want replaces the target states of all objects. Objects without a target state are not written any more, and stay as
// they are. A nil map means that no object has a target state. The map must not be modified afterwards. Want may be
// called before Run, and does not block.
func (w *Writer[O]) Want(all map[Key]Desired[O]) {
	w.with(func(q *queue[O]) { q.wants(all) })
}

// Replace implements Seen. It stores a complete list of the existing objects. The map must not be nil.
func (w *Writer[O]) Replace(all map[Key]Found[O]) {
	w.with(func(q *queue[O]) { q.replace(all) })
}

// Observe implements Seen. It stores the present state of one object, unless a newer version is known.
func (w *Writer[O]) Observe(k Key, f Found[O]) {
	w.with(func(q *queue[O]) { q.observe(k, f) })
}

func (w *Writer[O]) with(change func(*queue[O])) {
	w.mu.Lock()
	change(w.queue)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Problem is a reason why an object does not have its target state.
type Problem struct {
	Key     Key // empty: the problem concerns several or all objects of the kind
	Message string
}

// maxProblems bounds the number of objects that Problems names. Further objects are only counted.
const maxProblems = 20

// Problems returns the present problems of this process's term as leader. It returns nil outside of Run. The first
// Problem may concern all objects. At most 20 objects follow, sorted by namespace and name. One more Problem counts
// further objects. The caller owns the slice.
func (w *Writer[O]) Problems() (all []Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread != "" {
		all = append(all, Problem{Message: "the existing objects cannot be read from the API server; objects are written only after all have " +
			"been read once: " + w.unread})
	}
	return append(all, w.queue.problems(time.Now(), maxProblems)...)
}

// Run serves one term of this process as leader, with the given epoch. It reads the objects, and writes the objects
// that differ from their target (Want). It returns the context's error when ctx ends. It begins to write after one
// Deadline, because a write of the previous leader may still arrive until then. Failed writes are repeated with pauses
// of 1 to 64 s. An object that another writer keeps changing is written with pauses of 1 to 16 min. Calls must not
// overlap.
func (w *Writer[O]) Run(ctx context.Context, epoch int64) error {
	w.begin(epoch)
	defer w.begin(0)
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() { _ = w.API.Follow(ctx, w, w.reads) }) // the error is the context's
	if err := loop.Pause(ctx, w.Deadline); err != nil {
		return err
	}
	var until time.Time
	for ctx.Err() == nil {
		if _, object, wait := w.next(); object == nil {
			w.idle(ctx, wait)
			continue
		}
		if w.Limit.Wait(ctx) != nil {
			continue
		}
		if time.Until(until) <= w.Deadline {
			if until = w.leadsUntil(ctx); time.Until(until) <= 0 {
				_ = loop.Pause(ctx, 200*time.Millisecond)
				continue
			}
		}
		if key, object := w.take(); object != nil { // draws again, with the present target
			w.write(ctx, key, object, min(w.Deadline, time.Until(until)))
		}
	}
	return ctx.Err()
}

// begin starts a term with an epoch. It forgets the objects that were read in the previous term, and keeps the target
// states.
func (w *Writer[O]) begin(epoch int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := w.queue.want
	w.queue, w.unread, w.complained = newQueue[O](epoch), "", false
	w.queue.wants(want)
}

// reads stores and logs whether the objects can be read.
func (w *Writer[O]) reads(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.unread
	if w.unread = ""; err != nil {
		w.unread = problem.Cause(err)
	}
	switch {
	case was == "" && w.unread != "":
		w.Log.Warn("objects that this process writes to Kubernetes cannot be listed; they are written only after all have been listed once",
			obs.KeyKind, w.Kind, obs.KeyError, err)
	case was != "" && w.unread == "":
		w.Log.Info("objects that this process writes to Kubernetes can be listed again", obs.KeyKind, w.Kind)
	}
}

// leadsUntil returns a time up to which this process certainly leads, or the zero time if it is not known.
func (w *Writer[O]) leadsUntil(ctx context.Context) time.Time {
	ctx, cancel := context.WithTimeout(ctx, w.Deadline)
	defer cancel()
	until, err := w.Until(ctx)
	if err != nil {
		return time.Time{}
	}
	return until
}

func (w *Writer[O]) next() (Key, *O, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.next(time.Now())
}

func (w *Writer[O]) take() (Key, *O) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.take(time.Now())
}

// idle waits for a change, at most for the given duration.
func (w *Writer[O]) idle(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// write writes one object within a time limit and stores the result. After a conflict it reads the object again.
func (w *Writer[O]) write(ctx context.Context, k Key, o *O, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	found, err := w.API.Write(ctx, k, o)
	conflict := errors.Is(err, ErrConflict)
	if conflict {
		found, err = w.API.Get(ctx, k)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now, result := time.Now(), "written"
	switch {
	case err != nil:
		result = "failed"
		w.queue.failed(k, err, now)
		w.complain(k, err)
	case conflict:
		result = "conflict"
		if err := w.queue.conflicted(k, found, now); err != nil {
			w.complain(k, err)
		}
	default:
		if by := w.queue.wrote(k, found, now); by != "" {
			w.Log.Warn("another writer keeps overwriting an object with different content; this process leaves it alone for a while", obs.KeyKind,
				w.Kind,
				obs.KeyObject, k.String(), obs.KeyName, by)
		}
		if w.complained && !w.queue.failing() {
			w.complained = false
			w.Log.Info("objects can be written to Kubernetes again", obs.KeyKind, w.Kind)
		}
	}
	obs.KubeWrites.WithLabelValues(result).Inc()
}

// complain logs the first object that cannot be written. Problems reports every such object. The caller holds w.mu.
func (w *Writer[O]) complain(k Key, err error) {
	if !w.complained {
		w.Log.Warn("an object cannot be written to Kubernetes, trying again", obs.KeyKind, w.Kind, obs.KeyObject, k.String(), obs.KeyError, err)
	}
	w.complained = true
}
