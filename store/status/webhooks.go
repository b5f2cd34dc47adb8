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

// WebhookKind is one of the two kinds of webhook configurations of Kubernetes.
type WebhookKind string

// The kinds.
const (
	Validating WebhookKind = "ValidatingWebhookConfiguration"
	Mutating   WebhookKind = "MutatingWebhookConfiguration"
)

// resources maps each kind to its resource name in API paths.
var resources = map[WebhookKind]string{Validating: "validatingwebhookconfigurations", Mutating: "mutatingwebhookconfigurations"}

// Webhooks implements API for the webhook configurations of one kind with the label RevisionLabel. Installations of
// Istio set this label. Webhooks never creates a configuration.
type Webhooks struct {
	kind   WebhookKind
	client dynamic.ResourceInterface
	clings atomic.Bool // the API server has kept navarchd's managedFields after a write without them, so they are not removed again
}

var _ API[unstructured.Unstructured] = (*Webhooks)(nil)

// RevisionLabel is the label with the revision of a webhook configuration. For the configuration of a revision tag, its
// value is the revision that the tag stands for.
const RevisionLabel = "istio.io/rev"

// NewWebhooks returns the API for one kind of webhook configuration. An empty kubeconfig path stands for the service
// account of this process's Pod. No request is sent. An error means that the kubeconfig or the service account is
// missing or unusable. After an error the result is nil.
func NewWebhooks(kubeconfig string, kind WebhookKind) (*Webhooks, error) {
	client, err := dynamicOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resources[kind]}
	return &Webhooks{kind: kind, client: client.Resource(gvr)}, nil
}

// labelled restricts lists and watches to objects with the label RevisionLabel.
type labelled struct{ dynamic.ResourceInterface }

// List implements dynamic.ResourceInterface. It lists only objects with the label.
func (l labelled) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	o.LabelSelector = RevisionLabel
	return l.ResourceInterface.List(ctx, o)
}

// Watch implements dynamic.ResourceInterface. It watches only objects with the label.
func (l labelled) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = RevisionLabel
	return l.ResourceInterface.Watch(ctx, o)
}

// Follow implements API. It lists and watches the configurations until ctx ends, and returns the context's error.
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

// found wraps an object that was read, and changes it. It clears managedFields, unless navarchd's entries in them are
// still to be removed (WithoutClaims).
func (w *Webhooks) found(u *unstructured.Unstructured) Found[unstructured.Unstructured] {
	f := Found[unstructured.Unstructured]{Object: u, Version: versionOf(u.GetResourceVersion()), By: lastWriter(u.GetManagedFields(), "")}
	if WithoutClaims(u) == nil || w.clings.Load() {
		u.SetManagedFields(nil)
	}
	return f
}

// WithoutClaims returns a copy of an object without navarchd's entries of operation Update in managedFields. It returns
// nil if managedFields has no such entry, or only such entries. Without the entries, a later server-side apply of
// another manager has no conflict in fields that navarchd has written. With the entries, Helm 4 failed to roll a
// release back to its first version, with a conflict in failurePolicy
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields). The argument is not
// modified.
func WithoutClaims(u *unstructured.Unstructured) *unstructured.Unstructured {
	all := u.GetManagedFields()
	others := slices.DeleteFunc(slices.Clone(all), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationUpdate
	})
	if len(others) == len(all) || len(others) == 0 { // an API server ignores an empty list
		return nil
	}
	next := u.DeepCopy()
	next.SetManagedFields(others)
	return next
}

// Get implements API. It reads one configuration by name, also one without the label. The Found of an absent
// configuration is zero. An error means that the request failed.
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

// Write implements API. It replaces an existing configuration, and never creates one. If o has managedFields, they
// replace the stored managedFields. If o has no managedFields, the stored ones stay. ErrConflict means that the stored
// object has another version or is absent. Any other error means that the request failed.
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
