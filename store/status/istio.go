package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"navarch.io/navarch/store/loop"
)

// Kind is one of Istio's kinds whose objects have a status (IstioStatus, https://istio.io/docs/reference/config/meta/v1beta1/istio-status.html).
type Kind struct{ Group, Kind string }

const networking, security, telemetry, extensions = "networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io"

// IstioKinds are those that records are made of.
var IstioKinds = []Kind{
	{networking, "DestinationRule"}, {networking, "EnvoyFilter"}, {networking, "Gateway"}, {networking, "ProxyConfig"}, {networking, "ServiceEntry"}, {networking, "Sidecar"},
	{networking, "VirtualService"}, {networking, "WorkloadEntry"}, {networking, "WorkloadGroup"},
	{security, "AuthorizationPolicy"}, {security, "PeerAuthentication"}, {security, "RequestAuthentication"}, {telemetry, "Telemetry"},
	{extensions, "TrafficExtension"}, {extensions, "WasmPlugin"},
}

// versions of each group, the best first. Which of them a kind is served in says the API server.
var versions = map[string][]string{networking: {"v1", "v1beta1", "v1alpha3"}, security: {"v1", "v1beta1"}, telemetry: {"v1", "v1alpha1"}, extensions: {"v1alpha1"}}

// resource is the kind's name in paths.
func (k Kind) resource() string {
	name := strings.ToLower(k.Kind)
	if stem, is := strings.CutSuffix(name, "y"); is && !strings.HasSuffix(stem, "a") { // policies, and gateways
		return stem + "ies"
	}
	return name + "s"
}

// Istio is the objects of one kind of Istio's. Of each only metadata and status are kept; only the status is written.
type Istio struct {
	kind      Kind
	namespace string // empty: all
	client    dynamic.Interface
	serves    atomic.Pointer[schema.GroupVersionResource] // nil: not known yet, or it is not served
}

var _ API[unstructured.Unstructured] = (*Istio)(nil)

// NewIstio reads a kubeconfig; of an empty path the service account of the Pod that this process is in. Only objects of one namespace count,
// empty: of all. Nothing is asked.
func NewIstio(kubeconfig, namespace string, kind Kind) (*Istio, error) {
	client, err := dynamicOf(kubeconfig)
	return &Istio{kind: kind, namespace: namespace, client: client}, err
}

// lookAgain is how often a kind is looked for that is not served.
const lookAgain = 10 * time.Second

// Follow implements API. A kind that is not served has no objects.
func (i *Istio) Follow(ctx context.Context, s Seen[unstructured.Unstructured], failed func(error)) error {
	r := receiver[unstructured.Unstructured]{i.kind.resource(), s, failed, func(o any) (Key, Found[unstructured.Unstructured], bool) {
		u, is := o.(*unstructured.Unstructured)
		if !is {
			return Key{}, Found[unstructured.Unstructured]{}, false
		}
		return Key{u.GetNamespace(), u.GetName()}, foundStatus(u), true
	}}
	for ctx.Err() == nil {
		served, err := i.served(ctx)
		switch {
		case err != nil:
			failed(err)
			_ = loop.Pause(ctx, time.Second)
		case !served:
			_ = r.Replace(nil, "")
			_ = loop.Pause(ctx, lookAgain)
		default:
			r.session(ctx, listWatch(i.client.Resource(*i.serves.Load()).Namespace(i.namespace)), &unstructured.Unstructured{})
		}
	}
	return ctx.Err()
}

// served finds the best version that the kind is served in; false: none.
func (i *Istio) served(ctx context.Context) (bool, error) {
	i.serves.Store(nil)
	for _, version := range versions[i.kind.Group] {
		gvr := schema.GroupVersionResource{Group: i.kind.Group, Version: version, Resource: i.kind.resource()}
		_, err := i.client.Resource(gvr).Namespace(i.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			i.serves.Store(&gvr)
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, err
		}
	}
	return false, nil
}

// foundStatus keeps what is read of an object.
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
	return Found[unstructured.Unstructured]{Object: slim, Version: versionOf(u.GetResourceVersion()), By: lastWriter(u.GetManagedFields(), "status")}
}

var errNotServed = errors.New("the kind is not served")

// Get implements API.
func (i *Istio) Get(ctx context.Context, k Key) (Found[unstructured.Unstructured], error) {
	gvr := i.serves.Load()
	if gvr == nil {
		return Found[unstructured.Unstructured]{}, errNotServed
	}
	out, err := i.client.Resource(*gvr).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Found[unstructured.Unstructured]{}, nil
	case err != nil:
		return Found[unstructured.Unstructured]{}, err
	}
	return foundStatus(out), nil
}

// Write implements API: of the object the API server takes the status alone, and only where resourceVersion and uid are those that were read.
func (i *Istio) Write(ctx context.Context, k Key, o *unstructured.Unstructured) (Found[unstructured.Unstructured], error) {
	gvr := i.serves.Load()
	if gvr == nil {
		return Found[unstructured.Unstructured]{}, errNotServed
	}
	out, err := i.client.Resource(*gvr).Namespace(k.Namespace).UpdateStatus(ctx, o, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return Found[unstructured.Unstructured]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	case err != nil:
		return Found[unstructured.Unstructured]{}, err
	}
	return foundStatus(out), nil
}
