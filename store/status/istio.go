package status

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Kind is one of Istio's kinds whose objects have a status (IstioStatus,
// https://istio.io/docs/reference/config/meta/v1beta1/istio-status.html). It consists of API group and kind.
type Kind struct{ Group, Kind string }

const networking, security, telemetry, extensions = "networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io"

// IstioKinds lists the kinds of Istio that this control plane reads. It must not be modified.
var IstioKinds = []Kind{
	{networking, "DestinationRule"}, {networking, "EnvoyFilter"}, {networking, "Gateway"}, {networking, "ProxyConfig"},
	{networking, "ServiceEntry"}, {networking, "Sidecar"},
	{networking, "VirtualService"}, {networking, "WorkloadEntry"}, {networking, "WorkloadGroup"},
	{security, "AuthorizationPolicy"}, {security, "PeerAuthentication"}, {security, "RequestAuthentication"}, {telemetry, "Telemetry"},
	{extensions, "TrafficExtension"}, {extensions, "WasmPlugin"},
}

// Istio implements API for the objects of one of Istio's kinds. It writes only their status. Objects that it reads
// contain only the status, the kind with its API version, and these metadata: namespace, name, uid, resourceVersion and
// generation.
type Istio struct{ served }

var _ API[unstructured.Unstructured] = (*Istio)(nil)

// NewIstio returns the API for the objects of one kind. It sends no request. An empty kubeconfig path stands for the
// service account of this process's Pod. An empty namespace stands for all namespaces. An error means that the
// kubeconfig or the service account is missing or unusable. After an error the result must not be used.
func NewIstio(kubeconfig, namespace string, kind Kind) (*Istio, error) {
	client, err := dynamicOf(kubeconfig)
	return &Istio{served{kind: kind, namespace: namespace, client: client}}, err
}

// Follow implements API: it lists and watches the objects until ctx ends, and returns the context's error. A kind that
// the API server does not serve has no objects.
func (i *Istio) Follow(ctx context.Context, s Seen[unstructured.Unstructured], failed func(error)) error {
	return follow(ctx, &i.served, receiver[unstructured.Unstructured]{seen: s, failed: failed,
		read: func(o any) (Key, Found[unstructured.Unstructured], bool) {
			u, is := o.(*unstructured.Unstructured)
			if !is {
				return Key{}, Found[unstructured.Unstructured]{}, false
			}
			return Key{u.GetNamespace(), u.GetName()}, foundStatus(u), true
		}})
}

// foundStatus returns a Found of an object that was read. The Found has only the fields that the comment of Istio
// lists.
func foundStatus(u *unstructured.Unstructured) Found[unstructured.Unstructured] {
	slim := &unstructured.Unstructured{Object: map[string]any{}}
	slim.SetAPIVersion(u.GetAPIVersion())
	slim.SetKind(u.GetKind())
	slim.SetNamespace(u.GetNamespace())
	slim.SetName(u.GetName())
	slim.SetUID(u.GetUID())
	slim.SetResourceVersion(u.GetResourceVersion())
	slim.SetGeneration(u.GetGeneration())
	if status, has := u.Object["status"]; has {
		slim.Object["status"] = status
	}
	return Found[unstructured.Unstructured]{Object: slim, Version: versionOf(u.GetResourceVersion()),
		By: lastWriter(u.GetManagedFields(), "status")}
}

// Get implements API: it reads one object. If the object does not exist, the result is zero. An error means that the
// request failed, or that Follow has not found a served version of the kind.
func (i *Istio) Get(ctx context.Context, k Key) (Found[unstructured.Unstructured], error) {
	objects, _, err := i.objects(k.Namespace)
	if err != nil {
		return Found[unstructured.Unstructured]{}, err
	}
	out, err := objects.Get(ctx, k.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Found[unstructured.Unstructured]{}, nil
	case err != nil:
		return Found[unstructured.Unstructured]{}, err
	}
	return foundStatus(out), nil
}

// Write implements API: it replaces the status of an existing object. The API server changes only the status, and
// requires that resourceVersion and uid are still those that were read. ErrConflict means that resourceVersion or uid
// has changed, or that the object is absent. Any other error means that the request failed, or that Follow has not
// found a served version of the kind.
func (i *Istio) Write(ctx context.Context, k Key, o *unstructured.Unstructured) (Found[unstructured.Unstructured], error) {
	objects, _, err := i.objects(k.Namespace)
	if err != nil {
		return Found[unstructured.Unstructured]{}, err
	}
	out, err := objects.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return Found[unstructured.Unstructured]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	case err != nil:
		return Found[unstructured.Unstructured]{}, err
	}
	return foundStatus(out), nil
}
