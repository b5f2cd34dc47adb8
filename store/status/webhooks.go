package status

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// WebhookKind is one of the two kinds by which an API server is told of webhooks.
type WebhookKind string

// The kinds.
const (
	Validating WebhookKind = "ValidatingWebhookConfiguration"
	Mutating   WebhookKind = "MutatingWebhookConfiguration"
)

// resources are the kinds' names in paths.
var resources = map[WebhookKind]string{Validating: "validatingwebhookconfigurations", Mutating: "mutatingwebhookconfigurations"}

// Webhooks are the objects of one kind that have the label istio.io/rev, as all of Istio's have.
type Webhooks struct {
	kind   WebhookKind
	client dynamic.ResourceInterface
	clings atomic.Bool // the API server has kept a claim that was given up: none is given up any more
}

var _ API[unstructured.Unstructured] = (*Webhooks)(nil)

// RevisionLabel names the revision that a webhook configuration is of; a tag's that of the revision which the tag stands for.
const RevisionLabel = "istio.io/rev"

// NewWebhooks reads a kubeconfig; of an empty path the service account of the Pod that this process is in. Nothing is asked.
// An error: the kubeconfig cannot be read.
func NewWebhooks(kubeconfig string, kind WebhookKind) (*Webhooks, error) {
	client, err := dynamicOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resources[kind]}
	return &Webhooks{kind: kind, client: client.Resource(gvr)}, nil
}

// labelled are the objects that are listed and watched.
type labelled struct{ dynamic.ResourceInterface }

// List implements dynamic.ResourceInterface.
func (l labelled) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	o.LabelSelector = RevisionLabel
	return l.ResourceInterface.List(ctx, o)
}

// Watch implements dynamic.ResourceInterface.
func (l labelled) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = RevisionLabel
	return l.ResourceInterface.Watch(ctx, o)
}

// Follow implements API.
func (w *Webhooks) Follow(ctx context.Context, s Seen[unstructured.Unstructured], failed func(error)) error {
	r := receiver[unstructured.Unstructured]{resources[w.kind], s, failed, func(o any) (Key, Found[unstructured.Unstructured], bool) {
		u, is := o.(*unstructured.Unstructured)
		if !is {
			return Key{}, Found[unstructured.Unstructured]{}, false
		}
		return Key{Name: u.GetName()}, w.found(u), true
	}}
	for ctx.Err() == nil {
		r.session(ctx, listWatch(labelled{w.client}), &unstructured.Unstructured{})
	}
	return ctx.Err()
}

// found keeps managedFields where this process has claims to give up. It changes what it is given.
func (w *Webhooks) found(u *unstructured.Unstructured) Found[unstructured.Unstructured] {
	f := Found[unstructured.Unstructured]{Object: u, Version: versionOf(u.GetResourceVersion()), By: lastWriter(u.GetManagedFields(), "")}
	if WithoutClaims(u) == nil || w.clings.Load() {
		u.SetManagedFields(nil)
	}
	return f
}

// WithoutClaims is a copy of an object in which navarchd owns no field; nil: it owns none, or nobody else owns one. Whoever applies the object on the server then
// meets no conflict in fields that navarchd has written, as Helm 4 does in failurePolicy when it goes back to the first version of a release.
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields)
func WithoutClaims(u *unstructured.Unstructured) *unstructured.Unstructured {
	all := u.GetManagedFields()
	others := slices.DeleteFunc(slices.Clone(all), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationUpdate
	})
	if len(others) == len(all) || len(others) == 0 { // an API server takes an empty list for one that is not stated
		return nil
	}
	next := u.DeepCopy()
	next.SetManagedFields(others)
	return next
}

// Get implements API.
func (w *Webhooks) Get(ctx context.Context, k Key) (Found[unstructured.Unstructured], error) {
	out, err := w.client.Get(ctx, k.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Found[unstructured.Unstructured]{}, nil
	case err != nil:
		return Found[unstructured.Unstructured]{}, err
	}
	return w.found(out), nil
}

// Write implements API. Configurations are never created: whoever installs Istio's webhooks does. One with managedFields gives claims up.
func (w *Webhooks) Write(ctx context.Context, _ Key, o *unstructured.Unstructured) (Found[unstructured.Unstructured], error) {
	out, err := w.client.Update(ctx, o, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return Found[unstructured.Unstructured]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	case err != nil:
		return Found[unstructured.Unstructured]{}, err
	}
	if len(o.GetManagedFields()) > 0 && WithoutClaims(out) != nil {
		w.clings.Store(true)
	}
	return w.found(out), nil
}
