package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	sources "k8s.io/client-go/tools/cache/testing"
)

// The controller writes the address of a Service that is made, tries again after a failure but not after a conflict,
// and ends with its context.
func TestBalancerWrites(t *testing.T) {
	source := sources.NewFakeControllerSource()
	informer := cache.NewSharedIndexInformer(source, &corev1.Service{}, 0, cache.Indexers{})
	go informer.Run(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not begin")
	}
	answers := []error{nil, errors.New("the API server is busy"), nil, apierrors.NewConflict(schema.GroupResource{}, "c", nil), nil}
	writes := make(chan string, len(answers))
	b := &Balancer{Services: informer, Ranges: both, Log: slog.New(slog.DiscardHandler)}
	b.WriteStatus = func(_ context.Context, s *corev1.Service) error {
		err := answers[0]
		answers = answers[1:]
		writes <- fmt.Sprint(s.Name, addressesOf(s))
		if err == nil {
			source.Modify(s)
		}
		return err
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-writes:
			if got != want {
				t.Errorf("written %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("not written: %s", want)
		}
	}
	source.Add(service("a", 3))
	expect("a[192.0.2.1]")
	source.Add(service("b", 2))
	expect("b[192.0.2.2]")
	expect("b[192.0.2.2]") // again
	conflicting := service("c", 1)
	source.Add(conflicting)
	expect("c[192.0.2.3]")
	source.Modify(conflicting) // the change that caused the conflict
	expect("c[192.0.2.3]")
	stop()
	if err := <-done; err != nil || len(answers) > 0 {
		t.Errorf("%v, %d answers are left", err, len(answers))
	}
}
