package kube

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"navarch.io/navarch/store/apiserver/listwatch"
	"navarch.io/navarch/store/loop"
)

// Secrets lists and watches the Secrets of one namespace that match a label selector. It calls a function with these
// Secrets, and emits no events. Make it with NewSecrets.
type Secrets struct {
	clients         *clients
	namespace, with string // the field with is the label selector
	notify          func([]*corev1.Secret)
	failed          func(wrong string, forbidden bool)

	forbidden atomic.Bool // the last response was 403; the next request then waits for a minute

	all    map[string]*corev1.Secret // by name; used only by the goroutine of Run, which also runs the Reflector
	listed bool                      // all is a complete list; used only by the goroutine of Run
}

// NewSecrets returns a Secrets. It sends no request. The argument label is the label selector. The error means that the
// kubeconfig cannot be loaded, or that a credential or TLS setting is unusable. An empty kubeconfig path means the
// service account of this process's Pod.
//
// Run calls notify with all Secrets, in no order, after each complete list and after each change. The Secrets are
// read-only, and the slice belongs to notify. When a list or watch fails, Run calls failed with the reason. The
// argument forbidden states whether a right is missing. When a watch begins, Run calls failed with "", because the
// Secrets can be read. Run waits for notify and failed to return, and may call the two functions concurrently.
func NewSecrets(
	kubeconfig, namespace, label string, notify func([]*corev1.Secret), failed func(wrong string, forbidden bool),
) (*Secrets, error) {
	clients, err := connect(nil, kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Secrets{clients: clients, namespace: namespace, with: label, notify: notify, failed: failed}, nil
}

// relist is the interval after which the Secrets are listed again, whether or not their watch works.
const relist = 10 * time.Minute

// Run lists and watches the Secrets until ctx ends, and returns the error of ctx. Failed requests are retried. Only one
// call of Run may be in progress. A later Run lists the Secrets again.
func (s *Secrets) Run(ctx context.Context) error {
	s.all, s.listed = map[string]*corev1.Secret{}, false
	ctx = klog.NewContext(ctx, klog.Logger{}) // suppresses client-go's log: errors go to s.failed
	choose := func(o *metav1.ListOptions) { o.LabelSelector = s.with }
	plain := cache.NewFilteredListWatchFromClient(s.clients.typed[corev1.SchemeGroupVersion], "secrets", s.namespace, choose)
	lw := listwatch.Bound(plain, listwatch.Options{Failed: s.report, Watches: func(bool) { s.report(nil) }})
	for pauses := backoff; ctx.Err() == nil; {
		delays := backoff
		reflector := listwatch.Reflector("secrets", lw, &corev1.Secret{}, labelled{s}, cache.ReflectorOptions{Backoff: &delays})
		session, cancel := context.WithTimeout(ctx, relist)
		_ = reflector.ListAndWatchWithContext(session) // its error was reported through listwatch.Options.Failed
		cancel()
		pause := pauses.Step()
		if s.forbidden.Load() {
			pause = time.Minute
		}
		_ = loop.Pause(ctx, pause)
	}
	return ctx.Err()
}

// report calls s.failed with the result of a request. A nil err means that the request succeeded.
func (s *Secrets) report(err error) {
	s.forbidden.Store(apierrors.IsForbidden(err))
	if err == nil {
		s.failed("", false)
		return
	}
	s.failed(brief(err), apierrors.IsForbidden(err))
}

// change runs an update of s.all, and calls notify once the first list is complete. The error is always nil.
func (s *Secrets) change(update func()) error {
	if update(); s.listed {
		s.notify(slices.Collect(maps.Values(s.all)))
	}
	return nil
}

// labelled is the store of the Reflector. It applies the Reflector's calls to a Secrets.
type labelled struct{ s *Secrets }

var _ cache.ReflectorStore = labelled{}

// Add implements cache.ReflectorStore.
func (l labelled) Add(o any) error { return l.Update(o) }

// Update implements cache.ReflectorStore. It stores a Secret.
func (l labelled) Update(o any) error {
	secret := o.(*corev1.Secret)
	return l.s.change(func() { l.s.all[secret.Name] = secret })
}

// Delete implements cache.ReflectorStore. It removes a Secret.
func (l labelled) Delete(o any) error {
	secret, is := o.(*corev1.Secret)
	if !is {
		return nil
	}
	return l.s.change(func() { delete(l.s.all, secret.Name) })
}

// Replace implements cache.ReflectorStore. It replaces all Secrets by a complete list.
func (l labelled) Replace(list []any, _ string) error {
	return l.s.change(func() {
		clear(l.s.all)
		for _, o := range list {
			secret := o.(*corev1.Secret)
			l.s.all[secret.Name] = secret
		}
		l.s.listed = true
	})
}

// Resync implements cache.ReflectorStore; it has no effect.
func (l labelled) Resync() error { return nil }
