package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/push/trust"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/status"
)

// rootCerts keeps the ConfigMap istio-ca-root-cert of each namespace while this process leads.
type rootCerts struct {
	writer     *status.Writer[corev1.ConfigMap]
	namespaces func() (names []string, known bool, changed <-chan struct{})
	ring       trust.Keyring // nil: this process does not follow it
	origin     origin.Origin
	log        *slog.Logger

	unknown atomic.Pointer[string] // why nothing is written; nil: it is
}

// newRootCerts asks nothing yet. The limit is that of all that is written to Kubernetes. Errors name flags.
func newRootCerts(c *config, cluster *kube.Source, elector *lead.Elector, ring *keyring.Keyring, limit *rate.Limiter, log *slog.Logger) (*rootCerts, error) {
	api, err := status.NewConfigMaps(c.kubeconfig, status.RootCertName)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	writer := status.New(status.Config[corev1.ConfigMap]{API: api, Kind: "ConfigMap", Until: elector.Until, Limit: limit, Log: log})
	r := &rootCerts{writer: writer, namespaces: cluster.Namespaces, origin: cluster.Origin(), log: log}
	if ring != nil {
		r.ring = ring
	}
	return r, nil
}

// lead is one term.
func (r *rootCerts) lead(ctx context.Context, epoch kv.Epoch) {
	if r.ring == nil {
		r.cannot("this process does not follow the keyring (--kek)")
		<-ctx.Done()
		r.unknown.Store(nil)
		return
	}
	wanted := make(chan struct{})
	go func() {
		defer close(wanted)
		r.want(ctx)
	}()
	_ = r.writer.Run(ctx, epoch.Revision) // its error is the context's
	<-wanted
}

// want says what is wanted, as the keyring and the namespaces change. While the keyring is sealed that is not known.
func (r *rootCerts) want(ctx context.Context) {
	defer r.unknown.Store(nil)
	defer r.writer.Want(nil)
	for {
		rotated := r.ring.Changed()
		state := r.ring.State()
		names, known, moved := r.namespaces()
		switch {
		case state.Sealed != nil && !errors.Is(state.Sealed, keyring.ErrNotLoaded):
			r.cannot("this process cannot unseal the keyring: " + state.Sealed.Error())
			r.writer.Want(nil)
		case state.Sealed != nil || len(state.Bundle) == 0 || !known:
			r.unknown.Store(nil)
			r.writer.Want(nil)
		default:
			r.unknown.Store(nil)
			r.writer.Want(status.RootCerts(names, string(issue.EncodeCertificates(state.Bundle...))))
		}
		select {
		case <-rotated:
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// cannot notes why the roots of the mesh are not known.
func (r *rootCerts) cannot(why string) {
	if was := r.unknown.Swap(&why); was == nil || *was != why {
		r.log.Warn("ConfigMaps "+status.RootCertName+" are not written while this process leads", obs.KeyReason, why)
	}
}

// problems are those of this process's term.
func (r *rootCerts) problems() (all []object.Problem) {
	say := func(k status.Key, message string) {
		id := object.ID{Origin: r.origin, Kind: "ConfigMap", Namespace: k.Namespace, Name: k.Name}
		if k.Name == "" {
			id.Name = status.RootCertName
		}
		all = append(all, object.Problem{ID: id, Location: "Kubernetes", Code: problem.Pending, Severity: problem.Error, Message: message})
	}
	if why := r.unknown.Load(); why != nil {
		say(status.Key{}, "it is not written to any namespace: "+*why)
	}
	for _, p := range r.writer.Problems() {
		say(p.Key, p.Message)
	}
	return all
}
