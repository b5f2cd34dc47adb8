// Package listwatch bounds the lists and watches of client-go's Reflector in time and bytes. Every request has a
// deadline, a silent watch is opened again, and every response and event has a bound in bytes.
//
// Owns: the bounds of lists and watches. Reads: no other package of Navarch. Never: keeps an object; interprets the
// content of an object.
package listwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The defaults of the fields of Options with the same names.
const (
	Answer  = time.Minute
	Silence = 3 * time.Minute // an API server sends an event or a bookmark about once a minute
)

// pageSize is the number of objects in a page of a list. After a page above maxAnswer bytes, the other pages of the
// list have fewer objects.
const pageSize = 500

// ErrNoAnswer is the cause (context.Cause) of a request's context that ended because no answer came within
// Options.Answer.
var ErrNoAnswer = errors.New("no answer in time")

// Options has the bounds of a list and its watch, and functions that observe the requests. Each function may be nil.
// The goroutine of the Reflector or of the watch calls a function, and waits until it returns.
type Options struct {
	Answer  time.Duration // bounds a page of a list, and the beginning of a watch; 0: the constant Answer
	Silence time.Duration // bounds the time of a watch without an event or bookmark; 0: the constant Silence

	// Failed is called with the error if a list fails, if Listed or Passes returns an error, if a watch cannot be
	// opened, and if an event exceeds its bound. It is not called if a watch with an initial list cannot be opened, or
	// after the context has ended.
	Failed  func(error)
	Listed  func(page runtime.Object, first bool) error // called with each page that was read; an error ends the list
	Watches func(lists bool)                            // called when a watch has begun, perhaps with an initial list
	// Passes is called with each event, also of type Error; lists is true for the events of an initial list. If it
	// returns false, the Reflector does not receive the event. If it returns an error, the Reflector receives an error
	// with status 413, and ends the watch.
	Passes func(e watch.Event, lists bool) (bool, error)
	Passed func(came time.Time) // called after the Reflector has received an event, which arrived at the time came
	Silent func()               // called when a watch ends because it had no event for Silence
}

// Bound returns a ListWatch that calls the functions of plain within the bounds of o. The argument plain must have
// ListWithContextFunc and WatchFuncWithContext, and its client must use Transport. The first page of each list is a
// consistent read, whatever resource version the caller requests. The errors of a list or watch are those of plain and
// of Listed. The result is for one Reflector.
func Bound(plain *cache.ListWatch, o Options) *cache.ListWatch {
	o.Answer, o.Silence = cmp.Or(o.Answer, Answer), cmp.Or(o.Silence, Silence)
	b := &bounded{Options: o, plain: plain}
	return &cache.ListWatch{ListWithContextFunc: b.list, WatchFuncWithContext: b.watch}
}

// Reflector returns a Reflector that copies the objects of lw, a ListWatch of Bound, into a store. The argument like is
// any object of the type of these objects. o.Logger and o.Name are overwritten. The Reflector's methods log to the
// logger of their context. To report failures only by Options, pass a context with an empty klog.Logger.
func Reflector(name string, lw cache.ListerWatcher, like runtime.Object, into cache.ReflectorStore,
	o cache.ReflectorOptions) *cache.Reflector {
	o.Logger, o.Name = &klog.Logger{}, name
	r := cache.NewReflectorWithOptions(lw, like, into, o)
	r.WatchListPageSize = pageSize
	return r
}

// bounded implements the functions of a ListWatch within the bounds of its Options.
type bounded struct {
	Options
	plain *cache.ListWatch
	size  atomic.Int64 // size of the pages of the list in progress
}

// failed calls Failed, unless ctx has ended.
func (b *bounded) failed(ctx context.Context, err error) {
	if b.Failed != nil && ctx.Err() == nil {
		b.Failed(err)
	}
}

// list reads one page of a list. The first page always shows the present state, whatever resource version the Reflector
// requests. A list at an older resource version may come from a cache
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list).
func (b *bounded) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	first := o.Continue == ""
	if first {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
		b.size.Store(o.Limit)
	}
	for {
		o.Limit = b.size.Load()
		page, err := b.page(ctx, o)
		if errors.Is(err, ErrTooLarge) && o.Limit > 1 {
			b.size.Store(max(o.Limit/8, 1))
			continue
		}
		if err == nil && b.Listed != nil {
			err = b.Listed(page, first)
		}
		if err != nil {
			b.failed(ctx, err)
			return nil, err
		}
		return page, nil
	}
}

// page reads one page within Options.Answer.
func (b *bounded) page(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.Answer, ErrNoAnswer)
	defer cancel()
	return b.plain.ListWithContextFunc(ctx, o)
}

// watch opens a watch within Options.Answer.
func (b *bounded) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	of, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(b.Answer, func() { cancel(ErrNoAnswer) })
	size := newMeter(maxEvent)
	inner, err := b.plain.WatchFuncWithContext(size.attach(of), o)
	lists := o.SendInitialEvents != nil
	if late.Stop(); err != nil {
		if cancel(nil); !lists { // the Reflector lists next, or retries after a refused connection or status 429
			b.failed(ctx, err)
		}
		return nil, err
	}
	if b.Watches != nil {
		b.Watches(lists)
	}
	stopped := make(chan struct{})
	w := &watched{bounded: b, inner: inner, size: size, events: make(chan watch.Event), stopped: stopped, stop: sync.OnceFunc(func() {
		close(stopped)
		cancel(nil)
		inner.Stop()
	})}
	go w.run(ctx, lists)
	return w, nil
}

// watched is a watch with bounds. It passes on the events of inner.
type watched struct {
	*bounded
	inner   watch.Interface
	size    *meter
	events  chan watch.Event
	stopped chan struct{}
	stop    func()
}

// ResultChan implements watch.Interface.
func (w *watched) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *watched) Stop() { w.stop() }

// run passes events from inner to events until the watch ends. The parameter lists means that the watch begins with an
// initial list. A bookmark ends this list.
func (w *watched) run(ctx context.Context, lists bool) {
	defer close(w.events)
	defer w.stop()
	silence := time.NewTimer(w.Silence)
	defer silence.Stop()
	for {
		select {
		case e, open := <-w.inner.ResultChan():
			if !open {
				return
			}
			silence.Reset(w.Silence)
			came := time.Now()
			w.size.reset()
			if lists = lists && e.Type != watch.Bookmark; !w.pass(ctx, e, lists, came) {
				return
			}
		case <-silence.C:
			if w.Silent != nil {
				w.Silent()
			}
			return
		case <-w.stopped:
			return
		}
	}
}

// pass passes one event to the Reflector. It returns false if the watch has ended.
func (w *watched) pass(ctx context.Context, e watch.Event, lists bool, came time.Time) bool {
	if e.Type == watch.Error && w.size.exceeded() { // the Reflector does not report this
		w.failed(ctx, fmt.Errorf("a watch has ended: %w", ErrTooLarge))
	}
	if w.Passes != nil {
		passes, err := w.Passes(e, lists)
		if err != nil {
			w.failed(ctx, err)
			e = watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge,
				Reason: metav1.StatusReasonRequestEntityTooLarge, Message: err.Error()}}
		} else if !passes {
			return true
		}
	}
	select {
	case w.events <- e:
		if w.Passed != nil {
			w.Passed(came)
		}
		return true
	case <-w.stopped:
		return false
	}
}
