package kube

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch that says nothing, not even a bookmark, ends after Silence, and its request with it; one that does goes on.
func TestSilentWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Source{Config: Config{Silence: 3 * time.Minute}}
		inner := watch.NewFake()
		ctx, cancel := context.WithCancelCause(t.Context())
		w := s.bounded(inner, namespaces, false, cancel)
		began := time.Now()
		for range 10 {
			time.Sleep(time.Minute)
			inner.Action(watch.Bookmark, &corev1.Namespace{})
			if e, ok := <-w.ResultChan(); !ok || e.Type != watch.Bookmark {
				t.Fatalf("after %v: %v, %v", time.Since(began), e, ok)
			}
		}
		spoke := time.Now()
		if e, ok := <-w.ResultChan(); ok {
			t.Errorf("heard %v", e)
		}
		if took := time.Since(spoke); took != 3*time.Minute || ctx.Err() == nil || s.Stats().Silent != 1 {
			t.Errorf("ended after %v, request %v, %d silent watches", took, ctx.Err(), s.Stats().Silent)
		}
	})
}
