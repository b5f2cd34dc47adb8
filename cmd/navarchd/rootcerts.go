package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/push/trust"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead/promoted"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/status"
)

// content describes a ConfigMap that is written to each namespace and contains a part of the keyring.
type content struct {
	name string
	text func(*keyring.State) string // returns the text of the ConfigMap; empty: nothing is to be written
	want func(namespaces []string, text string) map[status.Key]status.Desired[corev1.ConfigMap]
	must bool // every mesh needs the ConfigMap, so a process that cannot make the text reports a problem
}

// The contents of the two kinds of ConfigMaps: root certificates, and revocation lists. ConfigMaps with revocation
// lists are written only if the user supplies such lists.
var (
	ofRoots = content{status.RootCertName, func(s *keyring.State) string { return string(issue.EncodeCertificates(s.Bundle...)) },
		status.RootCerts, true}
	ofLists = content{status.ListsName, listsOf, status.Lists, false}
)

// listsOf returns the user's revocation lists. It adds the keyring's own list for each issuer for which the user
// supplies no list. Verifiers need a list of every issuer. The result is empty if the user has no lists.
func listsOf(s *keyring.State) string {
	if len(s.Lists) == 0 {
		return ""
	}
	all := s.Lists
	for _, own := range s.CRLs {
		list, err := x509.ParseRevocationList(own.DER)
		if err == nil && !slices.ContainsFunc(all, func(o *x509.RevocationList) bool { return issue.SameIssuer(o, list) }) {
			all = append(all[:len(all):len(all)], list)
		}
	}
	var text []byte
	for _, list := range all {
		text = append(text, issue.EncodeCRL(list.Raw)...)
	}
	return string(text)
}

// rootCerts maintains one ConfigMap in each namespace while this process leads.
type rootCerts struct {
	content
	writer     *status.Writer[corev1.ConfigMap]
	namespaces func() (names []string, known bool, changed <-chan struct{})
	ring       trust.Keyring
	origin     origin.Origin
	log        *slog.Logger

	unknown atomic.Pointer[string] // why this process cannot make the text; nil: it can, or this is not known yet
}

// newRootCerts returns the leader's duty to write the ConfigMaps, without sending a request. ring is nil if this
// process does not follow the keyring. limit is shared by all writes to Kubernetes. Errors name flags.
func newRootCerts(of content, c *config, cluster *kube.Source,
	writes *promoted.Writer, ring *keyring.Keyring, limit *rate.Limiter, log *slog.Logger) (duty, error) {
	api, err := status.NewConfigMaps(c.kubeconfig, "", of.name)
	if err != nil {
		return duty{}, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	writer := status.New(status.Config[corev1.ConfigMap]{API: api, Kind: "ConfigMap", Until: writes.Until, Limit: limit, Log: log})
	r := &rootCerts{content: of, writer: writer, namespaces: cluster.Namespaces, ring: ring, origin: cluster.Origin(), log: log}
	if ring == nil {
		return duty{lead: r.leadWithoutKeyring, problems: r.problems}, nil
	}
	return duty{lead: r.lead, problems: r.problems}, nil
}

// leadWithoutKeyring runs during one term of a leader without a keyring. It writes nothing, and reports the reason as a
// problem.
func (r *rootCerts) leadWithoutKeyring(ctx context.Context, _ kv.Epoch) {
	r.cannot("this process does not follow the keyring (--kek)")
	<-ctx.Done()
	r.unknown.Store(nil)
}

// lead maintains the ConfigMaps during one term of this process as leader.
func (r *rootCerts) lead(ctx context.Context, epoch kv.Epoch) {
	wanted, needed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(wanted)
		r.follow(ctx, needed)
	}()
	select { // the writer follows ConfigMaps only once there is something to write
	case <-needed:
		_ = r.writer.Run(ctx, epoch.Revision) // its error is the context's
	case <-wanted:
	}
	<-wanted
}

// follow sets the wanted ConfigMaps whenever the keyring or the namespaces change. While the keyring is sealed, no
// ConfigMap is wanted. The channel needed is closed once there is something to write.
func (r *rootCerts) follow(ctx context.Context, needed chan<- struct{}) {
	need := sync.OnceFunc(func() { close(needed) })
	defer r.unknown.Store(nil)
	defer r.writer.Want(nil)
	for {
		rotated := r.ring.Changed()
		state := r.ring.State()
		names, known, moved := r.namespaces()
		text := r.text(state)
		switch {
		case state.Sealed != nil && !errors.Is(state.Sealed, keyring.ErrNotLoaded):
			r.cannot("this process cannot unseal the keyring: " + state.Sealed.Error())
			r.writer.Want(nil)
		case state.Sealed != nil || text == "" || !known:
			r.unknown.Store(nil)
			r.writer.Want(nil)
		default:
			r.unknown.Store(nil)
			r.writer.Want(r.want(names, text))
			need()
		}
		select {
		case <-rotated:
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// cannot records why the ConfigMap cannot be written. It does nothing unless every mesh needs the ConfigMap (must).
func (r *rootCerts) cannot(why string) {
	if !r.must {
		return
	}
	if was := r.unknown.Swap(&why); was == nil || *was != why {
		r.log.Warn("ConfigMaps "+r.name+" are not written while this process leads", obs.KeyReason, why)
	}
}

// problems returns the problems of writing the ConfigMaps during this process's term as leader.
func (r *rootCerts) problems() (all []object.Problem) {
	say := func(k status.Key, message string) {
		id := object.ID{Origin: r.origin, Kind: "ConfigMap", Namespace: k.Namespace, Name: k.Name}
		if k.Name == "" {
			id.Name = r.name
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
