package status

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ProxyConfigs reads the objects of kind ProxyConfig, with their spec and without managedFields. It never writes.
// Found.By is always empty.
type ProxyConfigs struct{ served }

// NewProxyConfigs returns a reader of ProxyConfigs. It sends no request. An empty kubeconfig path stands for the
// service account of this process's Pod. An empty namespace stands for all namespaces. An error means that the
// kubeconfig or the service account is missing or unusable. After an error the result must not be used.
func NewProxyConfigs(kubeconfig, namespace string) (*ProxyConfigs, error) {
	client, err := dynamicOf(kubeconfig)
	return &ProxyConfigs{served{kind: Kind{networking, "ProxyConfig"}, namespace: namespace, client: client}}, err
}

// Follow passes lists and changes to s until ctx ends, and then returns the context's error. It calls the function
// failed with the reason of each failure, and with nil after each complete list. A kind that the API server does not
// serve has no objects.
func (p *ProxyConfigs) Follow(ctx context.Context, s Seen[unstructured.Unstructured], failed func(error)) error {
	return follow(ctx, &p.served, receiver[unstructured.Unstructured]{seen: s, failed: failed,
		read: func(o any) (Key, Found[unstructured.Unstructured], bool) {
			u, is := o.(*unstructured.Unstructured)
			if !is {
				return Key{}, Found[unstructured.Unstructured]{}, false
			}
			u.SetManagedFields(nil)
			return Key{u.GetNamespace(), u.GetName()}, Found[unstructured.Unstructured]{Object: u, Version: versionOf(u.GetResourceVersion())}, true
		}})
}
