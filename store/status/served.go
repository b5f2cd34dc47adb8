package status

import (
	"context"
	"errors"
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

// versions lists the versions of each group, the preferred one first. The API server decides which versions exist.
var versions = map[string][]string{networking: {"v1", "v1beta1", "v1alpha3"}, security: {"v1", "v1beta1"}, telemetry: {"v1", "v1alpha1"},
	extensions: {"v1alpha1"}}

// resource returns the kind's name in paths.
func (k Kind) resource() string {
	name := strings.ToLower(k.Kind)
	if stem, is := strings.CutSuffix(name, "y"); is && !strings.HasSuffix(stem, "a") { // policies, but gateways
		return stem + "ies"
	}
	return name + "s"
}

// served is one of Istio's kinds, in the preferred version among those that the API server serves.
type served struct {
	kind      Kind
	namespace string // empty: all namespaces
	client    dynamic.Interface
	at        atomic.Pointer[schema.GroupVersionResource] // nil: unknown, or not served
}

// find determines the served version by requests to the API server. It returns false if the kind is not served. After
// an error the previous version stays.
func (s *served) find(ctx context.Context) (bool, error) {
	for _, version := range versions[s.kind.Group] {
		gvr := schema.GroupVersionResource{Group: s.kind.Group, Version: version, Resource: s.kind.resource()}
		_, err := s.client.Resource(gvr).Namespace(s.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			s.at.Store(&gvr)
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, err
		}
	}
	s.at.Store(nil)
	return false, nil
}

var errNotServed = errors.New("the kind is not served")

// objects returns a client for the objects of a namespace, and their apiVersion. The error errNotServed means that find
// has found no served version.
func (s *served) objects(namespace string) (objects dynamic.ResourceInterface, version string, err error) {
	gvr := s.at.Load()
	if gvr == nil {
		return nil, "", errNotServed
	}
	return s.client.Resource(*gvr).Namespace(namespace), gvr.GroupVersion().String(), nil
}

// lookAgain is the pause before find is repeated for a kind that is not served.
const lookAgain = 10 * time.Second

// follow lists and watches until ctx ends, and returns the context's error. A kind that is not served has no objects.
func follow[O any](ctx context.Context, s *served, r receiver[O]) error {
	r.name = s.kind.resource()
	for ctx.Err() == nil {
		is, err := s.find(ctx)
		switch {
		case err != nil:
			r.failed(err)
			_ = loop.Pause(ctx, time.Second)
		case !is:
			_ = r.Replace(nil, "")
			_ = loop.Pause(ctx, lookAgain)
		default:
			r.session(ctx, listWatch(s.client.Resource(*s.at.Load()).Namespace(s.namespace)), &unstructured.Unstructured{})
		}
	}
	return ctx.Err()
}
