// Package balancer gives Services of type LoadBalancer addresses of a range, as the controller of a cloud does. It
// writes status.loadBalancer.ingress; kube-proxy makes the rules by which each node serves these addresses.
//
// Services with a loadBalancerClass are those of other controllers. A Service gets an address of each of its IP
// families, or the one that it requests (loadBalancerIP), if that is free and in the range.
//
// Owns: nothing that outlives its context.  Reads: Services.  Never: rules or routes; used outside test clusters.
package balancer

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// Balancer writes the addresses of one cluster's Services.
type Balancer struct {
	Services cache.SharedIndexInformer // runs already
	// WriteStatus stores the status of a Service, with the errors of the API server.
	WriteStatus func(context.Context, *corev1.Service) error
	Ranges      Ranges
	Log         *slog.Logger
}

// Run works until the context ends. An error: the informer has stopped before.
func (b *Balancer) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err := b.Services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() }})
	if err != nil {
		return err
	}
	addresses := newTable(b.Ranges)
	waiting := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if !b.step(ctx, addresses, waiting) {
				time.AfterFunc(retry, notify)
			}
		}
	}
}

// retry is the pause after a write that failed.
const retry = time.Second

// step assigns addresses and writes them. It returns false if a write has to be tried again. A conflict does not: the
// change that caused it comes as an event.
func (b *Balancer) step(ctx context.Context, addresses *table, waiting map[string]bool) (written bool) {
	written = true
	var services []*corev1.Service
	for _, o := range b.Services.GetStore().List() {
		if s, is := o.(*corev1.Service); is {
			services = append(services, s)
		}
	}
	updates, pending := addresses.assign(services)
	for _, s := range updates {
		err := b.WriteStatus(ctx, s)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			written = false
			b.Log.Error("the address of a Service was not written, it is tried again", "service", s.Namespace+"/"+s.Name, "err", err)
		}
	}
	for _, s := range pending {
		if name := s.Namespace + "/" + s.Name; !waiting[name] {
			waiting[name] = true
			b.Log.Warn("a Service of type LoadBalancer has no address", "service", name, "requested", s.Spec.LoadBalancerIP, "ranges", b.Ranges)
		}
	}
	return written
}
