package status

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ProxyConfigs are the objects of kind ProxyConfig, in full. They are only read.
type ProxyConfigs struct{ served }

// NewProxyConfigs reads a kubeconfig; of an empty path the service account of the Pod that this process is in. Only objects of one namespace count,
// empty: of all. Nothing is asked. An error: the kubeconfig cannot be read.
func NewProxyConfigs(kubeconfig, namespace string) (*ProxyConfigs, error) {
	client, err := dynamicOf(kubeconfig)
	return &ProxyConfigs{served{kind: Kind{networking, "ProxyConfig"}, namespace: namespace, client: client}}, err
}

// Follow tells s of them until ctx ends, its error is the only one. failed is told why that does not work, nil: it does again.
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
