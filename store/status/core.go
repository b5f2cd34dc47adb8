package status

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// coreClient returns a client for objects of the core API. It sends no request.
func coreClient(kubeconfig string) (rest.Interface, error) {
	config, err := configOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.GroupVersion, config.APIPath = &corev1.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// coreObject is a pointer to an object of the core API.
type coreObject[O any] interface {
	*O
	metav1.Object
	runtime.Object
}

// coreObjects reads and writes single objects of one kind of the core API.
type coreObjects[O any, P coreObject[O]] struct {
	client   rest.Interface
	resource string
}

// found returns a Found of an object that was read. The Found has the last writer in managedFields. found removes
// managedFields from its argument.
func found[O any, P coreObject[O]](o P) Found[O] {
	f := Found[O]{Object: o, Version: versionOf(o.GetResourceVersion()), By: lastWriter(o.GetManagedFields(), "")}
	o.SetManagedFields(nil)
	return f
}

// Get implements API. It reads one object. The Found of an absent object is zero. An error means that the request
// failed.
func (c coreObjects[O, P]) Get(ctx context.Context, k Key) (Found[O], error) {
	out := P(new(O))
	err := c.client.Get().Namespace(k.Namespace).Resource(c.resource).Name(k.Name).Do(ctx).Into(out)
	if apierrors.IsNotFound(err) {
		return Found[O]{}, nil
	}
	return found[O](out), err
}

// Write implements API. If o has no resourceVersion, it creates the object. If o has one, it replaces the object.
// ErrConflict means that an object to create exists, or that an object to replace is absent or has another version. Any
// other error means that the request failed.
func (c coreObjects[O, P]) Write(ctx context.Context, k Key, o *O) (Found[O], error) {
	request, replaces := c.client.Post(), P(o).GetResourceVersion() != ""
	if replaces {
		request = c.client.Put().Name(k.Name)
	}
	out := P(new(O))
	err := request.Namespace(k.Namespace).Resource(c.resource).Body(P(o)).Do(ctx).Into(out)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || replaces && apierrors.IsNotFound(err) {
		return Found[O]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return found[O](out), err
}
