// Package listwatch bounds what a Kubernetes API server can do to a process that lists and watches its objects by client-go's Reflector: every request
// has a deadline, a watch that says nothing is opened again, and every answer and every event has a bound in bytes.
//
// Owns: these bounds.  Reads: nothing of ours.  Never: keeps an object; decides what becomes of one.
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

// The bounds of Options that are zero.
const (
	Answer  = time.Minute
	Silence = 3 * time.Minute // an API server says something once a minute: a bookmark, where there is nothing else
)

// pageSize is how many objects of a list are asked for at once, fewer where these have more than maxAnswer bytes.
const pageSize = 500

// ErrNoAnswer is why a request ended that took too long.
var ErrNoAnswer = errors.New("no answer in time")

// Options say what is bounded how, and who is told. Functions that are nil are not called.
type Options struct {
	Answer  time.Duration // a page of a list, or the beginning of a watch, that takes longer has failed; 0: Answer
	Silence time.Duration // a watch that says nothing for so long, not even a bookmark, ends; 0: Silence

	Failed  func(error)                                 // why a request failed, or a watch ended that was not asked to
	Listed  func(page runtime.Object, first bool) error // each page; its error fails the list
	Watches func(lists bool)                            // a watch has begun; lists: it begins with a list
	// each event, while lists is set those of the list; false: it is lost. Its error ends the watch
	Passes func(e watch.Event, lists bool) (bool, error)
	Passed func(came time.Time) // an event that came then was taken
	Silent func()               // a watch said nothing for too long
}

// Bound is a ListWatch with bounds, whose requests go by a Transport.
func Bound(plain *cache.ListWatch, o Options) *cache.ListWatch {
	o.Answer, o.Silence = cmp.Or(o.Answer, Answer), cmp.Or(o.Silence, Silence)
	b := &bounded{Options: o, plain: plain}
	return &cache.ListWatch{ListWithContextFunc: b.list, WatchFuncWithContext: b.watch}
}

// Reflector is one that puts what a bounded ListWatch says into a store. It logs nothing: whoever made the ListWatch is told.
func Reflector(name string, lw cache.ListerWatcher, like runtime.Object, into cache.ReflectorStore,
	o cache.ReflectorOptions) *cache.Reflector {
	o.Logger, o.Name = &klog.Logger{}, name
	r := cache.NewReflectorWithOptions(lw, like, into, o)
	r.WatchListPageSize = pageSize
	return r
}

type bounded struct {
	Options
	plain *cache.ListWatch
	size  atomic.Int64 // of the pages of the list that is being read
}

func (b *bounded) failed(ctx context.Context, err error) {
	if b.Failed != nil && ctx.Err() == nil {
		b.Failed(err)
	}
}

// list reads a page. The first one is of what there is now, whatever the Reflector asks for: an older list may be what a cache kept
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

func (b *bounded) page(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.Answer, ErrNoAnswer)
	defer cancel()
	return b.plain.ListWithContextFunc(ctx, o)
}

func (b *bounded) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	of, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(b.Answer, func() { cancel(ErrNoAnswer) })
	size := newMeter(maxEvent)
	inner, err := b.plain.WatchFuncWithContext(size.attach(of), o)
	lists := o.SendInitialEvents != nil
	if late.Stop(); err != nil {
		if cancel(nil); !lists { // else an API server without such watches is asked for a list next
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

// watched is a watch with bounds.
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

// run passes on what the watch says, until it ends; lists: it begins with a list, which ends with a bookmark.
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

// pass passes an event on; false: the watch is over.
func (w *watched) pass(ctx context.Context, e watch.Event, lists bool, came time.Time) bool {
	if e.Type == watch.Error && w.size.exceeded() { // the Reflector says nothing of it
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
