package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listWatch is how a kind is listed and watched: what comes is stripped at once, every request has a deadline, and a watch that says nothing
// ends.
func (s *Source) listWatch(f *follower, k kind) *cache.ListWatch {
	plain := s.plain(k)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // "0" may be answered with something old (kubernetes.io: resource versions)
			}
			within, cancel := context.WithTimeoutCause(ctx, s.Answer, errNoAnswer)
			defer cancel()
			list, err := plain.ListWithContextFunc(within, o)
			if err != nil {
				if ctx.Err() == nil {
					f.fails(err)
				}
				return nil, err
			}
			return list, meta.EachListItem(list, func(o runtime.Object) error { k.strip(o); return nil })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			of, cancel := context.WithCancelCause(ctx)
			late := time.AfterFunc(s.Answer, func() { cancel(errNoAnswer) })
			w, err := plain.WatchFuncWithContext(of, o)
			if late.Stop(); err != nil {
				cancel(nil)
				if ctx.Err() == nil {
					f.fails(err)
				}
				return nil, err
			}
			f.works()
			if o.SendInitialEvents == nil {
				s.watches.Add(1)
			}
			return s.bounded(w, k, o.SendInitialEvents != nil, cancel), nil
		},
	}
}

// plain lists and watches a kind, without more.
func (s *Source) plain(k kind) *cache.ListWatch {
	choose := func(o *metav1.ListOptions) {
		if o.LabelSelector = k.labels; k.name != "" {
			o.FieldSelector = "metadata.name=" + k.name
		}
	}
	if typed, is := s.clients.typed[k.gv()]; is {
		return cache.NewFilteredListWatchFromClient(typed, k.resource, k.namespace, choose)
	}
	resource := s.clients.dynamic.Resource(k.gv().WithResource(k.resource)).Namespace(k.namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, o)
		},
	}
}

// watched is a watch that ends where it says nothing for too long.
type watched struct {
	inner  watch.Interface
	events chan watch.Event
	stop   func()
}

func (w *watched) ResultChan() <-chan watch.Event { return w.events }

func (w *watched) Stop() { w.stop() }

// bounded makes a watch a watched one; lists: it begins with a list, which ends with a bookmark; cancel ends its request.
func (s *Source) bounded(inner watch.Interface, k kind, lists bool, cancel context.CancelCauseFunc) *watched {
	stopped := make(chan struct{})
	w := &watched{inner: inner, events: make(chan watch.Event), stop: sync.OnceFunc(func() {
		close(stopped)
		cancel(nil)
		inner.Stop()
	})}
	go func() {
		defer close(w.events)
		defer w.stop()
		silence := time.NewTimer(s.Silence)
		defer silence.Stop()
		for {
			select {
			case e, ok := <-inner.ResultChan():
				if !ok {
					return
				}
				silence.Reset(s.Silence)
				came := time.Now()
				if lists = lists && e.Type != watch.Bookmark; s.lose != nil && !lists && s.lose(e) {
					continue
				}
				if e.Type == watch.Added || e.Type == watch.Modified {
					k.strip(e.Object)
				}
				select {
				case w.events <- e:
					s.heard.note(k.id(), came)
				case <-stopped:
					return
				}
			case <-silence.C:
				s.silent.Add(1)
				return
			case <-stopped:
				return
			}
		}
	}()
	return w
}
