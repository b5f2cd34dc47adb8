// Package status writes to the API server of Kubernetes: the ConfigMap istio-ca-root-cert of each namespace, WorkloadEntries of machines, entries in
// the status of Istio's objects, and Events about objects that are refused or held. Callers state what is wanted object by object (Desired). An object that differs from it, whoever
// changed it, waits in a queue, in which owners of many objects take turns with others (Desired.Turn).
//
// Owns: which objects wait and since when, who writes against this process; the annotation EpochAnnotation of whole objects that it has
// written; in the status of others the entries that are its own (Report).  Reads: the objects that it writes, by a watch of its own.  Never: writes while this process does not lead, nor with a deadline after the end of its
// lease, nor what is there as wanted already, nor more than Rate objects a second; writes without the resourceVersion that it has read.
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

// Rate is how many objects are written a second, at most.
const Rate = 50

// EpochAnnotation names the epoch of the leader that wrote an object last.
const EpochAnnotation = "navarch.io/epoch"

// Key names an object among those of its kind.
type Key struct{ Namespace, Name string }

// String is namespace/name.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Desired is what an object should be.
type Desired[O any] struct {
	Version string // the same where the same is wanted
	// Turn is whose it is, among those who take turns in having objects written; empty: nobody's, who are one together.
	Turn string
	// Draw makes of an object as it is there, nil: there is none, the one that is to be written, with the epoch's annotation; nil: what is there
	// is as it should be. It changes nothing that it is given.
	Draw func(there *O, epoch int64) *O
	// Left says why an object that Draw has nothing to write of is left as it is, though something else is wanted; empty: it is as wanted. It may be
	// nil. A problem says it.
	Left func(there *O) string
}

// Version is the resourceVersion of an object, as a number (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
type Version uint64

// Found is an object as it is there.
type Found[O any] struct {
	Object  *O // nil: it is not there
	Version Version
	By      string // who wrote it last, as managedFields has it; may be empty
}

// API is how the objects of one kind are read and written.
type API[O any] interface {
	// Follow lists and watches until ctx ends, its error is the only one; failed is told why that does not work, nil: it does again.
	Follow(ctx context.Context, s Seen[O], failed func(error)) error
	// Get reads an object; Found without an Object and no error: it is not there.
	Get(ctx context.Context, k Key) (Found[O], error)
	// Write creates an object that has no resourceVersion, and replaces one that has: ErrConflict where there is another one.
	Write(ctx context.Context, k Key, o *O) (Found[O], error)
}

// Seen is told what is there.
type Seen[O any] interface {
	Replace(all map[Key]Found[O]) // a complete list
	Observe(k Key, f Found[O])    // a change
}

// ErrConflict is why something is not written: it is not there as it was read.
var ErrConflict = errors.New("somebody else has written it")

// Config is what New needs.
type Config[O any] struct {
	API  API[O]
	Kind string // of the objects, for messages
	// Until says a time up to which this process leads for certain (lead.Elector.Until).
	Until    func(context.Context) (time.Time, error)
	Deadline time.Duration // no write takes longer; 0: 3 s
	// Limit is the pace of several Writers together; nil: this one writes Rate objects a second.
	Limit *rate.Limiter
	Log   *slog.Logger
}

// Writer writes the objects of one kind while this process leads. Safe for concurrent use.
type Writer[O any] struct {
	Config[O]
	wake chan struct{} // one place

	mu         sync.Mutex // guards what follows; nothing blocks under it
	queue      *queue[O]
	unread     string // why what is there cannot be read; empty: it can
	complained bool   // the log has it that writes fail
}

// New asks nothing of the API server.
func New[O any](c Config[O]) *Writer[O] {
	c.Deadline = cmp.Or(c.Deadline, 3*time.Second)
	c.Limit = cmp.Or(c.Limit, NewLimit())
	return &Writer[O]{Config: c, wake: make(chan struct{}, 1), queue: newQueue[O](0)}
}

// NewLimit lets Rate objects be written a second.
func NewLimit() *rate.Limiter { return rate.NewLimiter(Rate, 1) }

// Want says what is wanted from now on: nothing else is written. What is not wanted any more stays as it is.
func (w *Writer[O]) Want(all map[Key]Desired[O]) {
	w.with(func(q *queue[O]) { q.wants(all) })
}

// Replace implements Seen.
func (w *Writer[O]) Replace(all map[Key]Found[O]) {
	w.with(func(q *queue[O]) { q.replace(all) })
}

// Observe implements Seen.
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

// Problem is what is wrong with one object, or, without a name, with all of them.
type Problem struct {
	Key     Key
	Message string
}

// maxProblems is how many objects are named that cannot be written; the others are counted.
const maxProblems = 20

// Problems are those of this process's term.
func (w *Writer[O]) Problems() (all []Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread != "" {
		all = append(all, Problem{Message: "the objects that are there cannot be read from the API server; none is written before all were " +
			"read once: " + w.unread})
	}
	return append(all, w.queue.problems(time.Now(), maxProblems)...)
}

// Run is one term: it reads what is there, and writes what differs from what is wanted (Want), until ctx ends, which is its only error. What
// the leader before has begun to write may arrive for one Deadline; nothing is written before that has passed.
func (w *Writer[O]) Run(ctx context.Context, epoch int64) error {
	w.begin(epoch)
	defer w.begin(0)
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() { _ = w.API.Follow(ctx, w, w.reads) }) // its error is the context's
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
		if key, object := w.take(); object != nil { // as it is wanted by now
			w.write(ctx, key, object, min(w.Deadline, time.Until(until)))
		}
	}
	return ctx.Err()
}

// begin forgets what another term has read; what is wanted stays.
func (w *Writer[O]) begin(epoch int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := w.queue.want
	w.queue, w.unread, w.complained = newQueue[O](epoch), "", false
	w.queue.wants(want)
}

// reads notes whether what is there can be read.
func (w *Writer[O]) reads(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.unread
	if w.unread = ""; err != nil {
		w.unread = problem.Cause(err)
	}
	switch {
	case was == "" && w.unread != "":
		w.Log.Warn("objects that this process writes to Kubernetes cannot be listed there; none is written until all have been listed once",
			obs.KeyKind, w.Kind, obs.KeyError, err)
	case was != "" && w.unread == "":
		w.Log.Info("objects that this process writes to Kubernetes can be listed there again", obs.KeyKind, w.Kind)
	}
}

// leadsUntil is the zero time where that is not known.
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

// idle waits until something changes, or for so long.
func (w *Writer[O]) idle(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// write writes one object, within a time, and takes in what became of it. After a conflict the object is read again.
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

// complain logs the first object of those that cannot be written; problems name all. The caller holds w.mu.
func (w *Writer[O]) complain(k Key, err error) {
	if !w.complained {
		w.Log.Warn("an object cannot be written to Kubernetes, trying again", obs.KeyKind, w.Kind, obs.KeyObject, k.String(), obs.KeyError, err)
	}
	w.complained = true
}
