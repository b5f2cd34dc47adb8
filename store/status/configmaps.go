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
	"k8s.io/client-go/tools/cache"
)

// ConfigMaps are those of one name, in all namespaces or in one.
type ConfigMaps struct {
	namespace, name string
	client          rest.Interface
}

var _ API[corev1.ConfigMap] = (*ConfigMaps)(nil)

// NewConfigMaps reads a kubeconfig; of an empty path the service account of the Pod that this process is in. The empty namespace stands for all. Nothing
// is asked. An error: the kubeconfig cannot be read.
func NewConfigMaps(kubeconfig, namespace, name string) (*ConfigMaps, error) {
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
	client, err := rest.RESTClientFor(config)
	return &ConfigMaps{namespace: namespace, name: name, client: client}, err
}

// Follow implements API.
func (c *ConfigMaps) Follow(ctx context.Context, s Seen[corev1.ConfigMap], failed func(error)) error {
	choose := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + c.name }
	lw := cache.NewFilteredListWatchFromClient(c.client, "configmaps", c.namespace, choose)
	r := receiver[corev1.ConfigMap]{"configmaps", s, failed, func(o any) (Key, Found[corev1.ConfigMap], bool) {
		m, is := o.(*corev1.ConfigMap)
		if !is {
			return Key{}, Found[corev1.ConfigMap]{}, false
		}
		return Key{m.Namespace, m.Name}, found(m), true
	}}
	for ctx.Err() == nil {
		r.session(ctx, lw, &corev1.ConfigMap{})
	}
	return ctx.Err()
}

// found keeps of managedFields who wrote last. It changes what it is given.
func found(m *corev1.ConfigMap) Found[corev1.ConfigMap] {
	f := Found[corev1.ConfigMap]{Object: m, Version: versionOf(m.ResourceVersion), By: lastWriter(m.ManagedFields, "")}
	m.ManagedFields = nil
	return f
}

// Get implements API.
func (c *ConfigMaps) Get(ctx context.Context, k Key) (Found[corev1.ConfigMap], error) {
	out := &corev1.ConfigMap{}
	err := c.client.Get().Namespace(k.Namespace).Resource("configmaps").Name(k.Name).Do(ctx).Into(out)
	if apierrors.IsNotFound(err) {
		return Found[corev1.ConfigMap]{}, nil
	}
	return found(out), err
}

// Write implements API.
func (c *ConfigMaps) Write(ctx context.Context, k Key, o *corev1.ConfigMap) (Found[corev1.ConfigMap], error) {
	request := c.client.Post()
	if o.ResourceVersion != "" {
		request = c.client.Put().Name(k.Name)
	}
	out := &corev1.ConfigMap{}
	err := request.Namespace(k.Namespace).Resource("configmaps").Body(o).Do(ctx).Into(out)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || o.ResourceVersion != "" && apierrors.IsNotFound(err) {
		return Found[corev1.ConfigMap]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return found(out), err
}
