package status

import (
	"context"
	"fmt"

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
		return Key{Name: u.GetName()}, foundWhole(u), true
	}}
	for ctx.Err() == nil {
		r.session(ctx, listWatch(labelled{w.client}), &unstructured.Unstructured{})
	}
	return ctx.Err()
}

// foundWhole keeps of managedFields who wrote last. It changes what it is given.
func foundWhole(u *unstructured.Unstructured) Found[unstructured.Unstructured] {
	f := Found[unstructured.Unstructured]{Object: u, Version: versionOf(u.GetResourceVersion()), By: lastWriter(u.GetManagedFields(), "")}
	u.SetManagedFields(nil)
	return f
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
	return foundWhole(out), nil
}

// Write implements API. Configurations are never created: whoever installs Istio's webhooks does.
func (w *Webhooks) Write(ctx context.Context, _ Key, o *unstructured.Unstructured) (Found[unstructured.Unstructured], error) {
	out, err := w.client.Update(ctx, o, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return Found[unstructured.Unstructured]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	case err != nil:
		return Found[unstructured.Unstructured]{}, err
	}
	return foundWhole(out), nil
}
