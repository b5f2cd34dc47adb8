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

// versions of each group, the best first. Which of them a kind is served in says the API server.
var versions = map[string][]string{networking: {"v1", "v1beta1", "v1alpha3"}, security: {"v1", "v1beta1"}, telemetry: {"v1", "v1alpha1"},
	extensions: {"v1alpha1"}}

// resource is the kind's name in paths.
func (k Kind) resource() string {
	name := strings.ToLower(k.Kind)
	if stem, is := strings.CutSuffix(name, "y"); is && !strings.HasSuffix(stem, "a") { // policies, and gateways
		return stem + "ies"
	}
	return name + "s"
}

// served is one of Istio's kinds, in the best version that the API server serves it in.
type served struct {
	kind      Kind
	namespace string // empty: all
	client    dynamic.Interface
	at        atomic.Pointer[schema.GroupVersionResource] // nil: not known yet, or it is not served
}

// find looks for that version; false: there is none. Where that cannot be said the one before stands.
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

// objects is how those of a namespace are read and written, and the apiVersion that they have there.
func (s *served) objects(namespace string) (objects dynamic.ResourceInterface, version string, err error) {
	gvr := s.at.Load()
	if gvr == nil {
		return nil, "", errNotServed
	}
	return s.client.Resource(*gvr).Namespace(namespace), gvr.GroupVersion().String(), nil
}

// lookAgain is how often a kind is looked for that is not served.
const lookAgain = 10 * time.Second

// follow lists and watches until ctx ends, its error is the only one. A kind that is not served has no objects.
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
