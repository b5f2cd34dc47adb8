package status

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// ConfigMaps implements API for the ConfigMaps with one name, in all namespaces or in one namespace.
type ConfigMaps struct {
	namespace, name string
	coreObjects[corev1.ConfigMap, *corev1.ConfigMap]
}

var _ API[corev1.ConfigMap] = (*ConfigMaps)(nil)

// NewConfigMaps returns the API for the ConfigMaps with the given name. It sends no request. An empty kubeconfig path
// stands for the service account of this process's Pod. An empty namespace stands for all namespaces. An error means
// that the kubeconfig or the service account is missing or unusable. After an error the result must not be used.
func NewConfigMaps(kubeconfig, namespace, name string) (*ConfigMaps, error) {
	client, err := coreClient(kubeconfig)
	return &ConfigMaps{namespace, name, coreObjects[corev1.ConfigMap, *corev1.ConfigMap]{client, "configmaps"}}, err
}

// Follow implements API. It lists and watches the ConfigMaps until ctx ends, and returns the context's error.
func (c *ConfigMaps) Follow(ctx context.Context, s Seen[corev1.ConfigMap], failed func(error)) error {
	choose := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + c.name }
	lw := cache.NewFilteredListWatchFromClient(c.client, "configmaps", c.namespace, choose)
	r := receiver[corev1.ConfigMap]{"configmaps", s, failed, func(o any) (Key, Found[corev1.ConfigMap], bool) {
		m, is := o.(*corev1.ConfigMap)
		if !is {
			return Key{}, Found[corev1.ConfigMap]{}, false
		}
		return Key{m.Namespace, m.Name}, found[corev1.ConfigMap](m), true
	}}
	for ctx.Err() == nil {
		r.session(ctx, lw, &corev1.ConfigMap{})
	}
	return ctx.Err()
}
