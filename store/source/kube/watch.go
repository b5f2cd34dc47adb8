package kube

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/apiserver/listwatch"
)

// listWatch returns the lists and watches of a kind. It drops unneeded fields of received objects at once (strip), and
// enforces the limits (admit).
func (s *Source) listWatch(f *follower, k kind) *cache.ListWatch {
	return listwatch.Bound(s.plain(k), listwatch.Options{Answer: s.Answer, Silence: s.Silence,
		Failed: f.fails,
		Listed: func(page runtime.Object, first bool) error {
			objects, bytes := 0, 0
			err := meta.EachListItem(page, func(o runtime.Object) error {
				k.strip(o)
				objects++
				bytes += weight(o)
				return nil
			})
			return errors.Join(err, isWhole(page), f.admit(objects, bytes, first))
		},
		Watches: func(lists bool) {
			f.works()
			if !lists {
				s.watches.Add(1)
			} else {
				_ = f.admit(0, 0, true) // resets the amount, because a watch with an initial list starts from zero
			}
		},
		Passes: func(e watch.Event, lists bool) (bool, error) {
			if s.lose != nil && !lists && s.lose(e) {
				return false, nil
			}
			if e.Type != watch.Added && e.Type != watch.Modified {
				return true, nil
			}
			if k.strip(e.Object); !lists {
				return true, nil
			}
			return true, f.admit(1, weight(e.Object), false)
		},
		Passed: func(came time.Time) { s.progress.record(k.id(), came) },
		Silent: func() { s.silent.Add(1) },
	})
}

// plain returns the lists and watches of a kind, without dropping fields and without limits.
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

// errPartial is the error for a list whose last page reports missing objects.
var errPartial = errors.New("the last page of the list says that more objects remain")

// isWhole returns errPartial if a page is the last of its list and reports that more objects remain. A page without
// list metadata is an error too.
func isWhole(page runtime.Object) error {
	m, err := meta.ListAccessor(page)
	if err != nil {
		return err
	}
	if remaining := m.GetRemainingItemCount(); m.GetContinue() == "" && remaining != nil && *remaining > 0 {
		return errPartial
	}
	return nil
}
