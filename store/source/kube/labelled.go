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

// Secrets follows the Secrets of one namespace that have a label, and nothing else. What it reads never becomes an object of the configuration.
type Secrets struct {
	clients         *clients
	namespace, with string
	notify          func([]*corev1.Secret)
	wrong           func(wrong string, forbidden bool)

	forbidden atomic.Bool // the last answer said so: a right that is given later is found within a minute

	all    map[string]*corev1.Secret // of the goroutine of Run, in which the Reflector puts Secrets here; the same
	listed bool
}

// NewSecrets reads the kubeconfig; nothing is asked of the API server before Run. notify is called with all of them, once they were listed in full and
// then after each change, by the goroutine of Run, which waits for it; wrong with why they cannot be read, empty: they can.
func NewSecrets(kubeconfig, namespace, label string, notify func([]*corev1.Secret), wrong func(wrong string, forbidden bool)) (*Secrets, error) {
	clients, err := connect(nil, kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Secrets{clients: clients, namespace: namespace, with: label, notify: notify, wrong: wrong}, nil
}

// relist is how long a watch is believed: after that everything is listed again.
const relist = 10 * time.Minute

// Run follows them until ctx ends. It may be called again after it has returned, and begins again. Its error is the context's.
func (s *Secrets) Run(ctx context.Context) error {
	s.all, s.listed = map[string]*corev1.Secret{}, false
	ctx = klog.NewContext(ctx, klog.Logger{}) // what goes wrong is reported by wrong
	plain := cache.NewFilteredListWatchFromClient(s.clients.typed[corev1.SchemeGroupVersion], "secrets", s.namespace, func(o *metav1.ListOptions) { o.LabelSelector = s.with })
	lw := listwatch.Bound(plain, listwatch.Options{Failed: s.says, Watches: func(bool) { s.says(nil) }})
	for pauses := backoff; ctx.Err() == nil; {
		delays := backoff
		reflector := listwatch.Reflector("secrets", lw, &corev1.Secret{}, labelled{s}, cache.ReflectorOptions{Backoff: &delays})
		session, cancel := context.WithTimeout(ctx, relist)
		_ = reflector.ListAndWatchWithContext(session) // said by says
		cancel()
		pause := pauses.Step()
		if s.forbidden.Load() {
			pause = time.Minute
		}
		_ = loop.Pause(ctx, pause)
	}
	return ctx.Err()
}

func (s *Secrets) says(err error) {
	s.forbidden.Store(apierrors.IsForbidden(err))
	if err == nil {
		s.wrong("", false)
		return
	}
	s.wrong(brief(err), apierrors.IsForbidden(err))
}

// change changes what is known, and notifies of it.
func (s *Secrets) change(how func()) error {
	if how(); s.listed {
		s.notify(slices.Collect(maps.Values(s.all)))
	}
	return nil
}

// labelled is what the Reflector puts Secrets into.
type labelled struct{ s *Secrets }

var _ cache.ReflectorStore = labelled{}

func (l labelled) Add(o any) error { return l.Update(o) }

func (l labelled) Update(o any) error {
	secret := o.(*corev1.Secret)
	return l.s.change(func() { l.s.all[secret.Name] = secret })
}

func (l labelled) Delete(o any) error {
	secret, is := o.(*corev1.Secret)
	if !is {
		return nil
	}
	return l.s.change(func() { delete(l.s.all, secret.Name) })
}

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

func (l labelled) Resync() error { return nil }
