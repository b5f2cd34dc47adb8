package inject

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/labels"
)

// ProxyConfigs returns the objects of kind ProxyConfig of a namespace, the oldest first. A nil function means that no
// object exists. The function must be safe for concurrent use. This package does not modify the objects.
type ProxyConfigs func(namespace string) []*proxyconfigv1.ProxyConfig

// forNamespace returns the oldest ProxyConfig without a selector in a namespace, or nil. Such a ProxyConfig applies to
// its whole namespace. In the root namespace, it applies to the whole mesh.
func (p ProxyConfigs) forNamespace(namespace string) *proxyconfigv1.ProxyConfig {
	if p == nil || namespace == "" {
		return nil
	}
	for _, c := range p(namespace) {
		if c.GetSelector() == nil {
			return c
		}
	}
	return nil
}

// forWorkload returns the oldest ProxyConfig of a namespace whose selector matches the labels of a Pod, or nil. A
// selector without labels matches nothing.
func (p ProxyConfigs) forWorkload(namespace string, pod map[string]string) *proxyconfigv1.ProxyConfig {
	if p == nil {
		return nil
	}
	for _, c := range p(namespace) {
		if wanted := c.GetSelector().GetMatchLabels(); len(wanted) > 0 && labels.SelectorFromSet(wanted).Matches(labels.Set(pod)) {
			return c
		}
	}
	return nil
}

// addProxyConfig adds the fields of a ProxyConfig to a proxy's configuration. Environment variables are added to those
// of the proxy's configuration.
func addProxyConfig(into *meshv1alpha1.ProxyConfig, c *proxyconfigv1.ProxyConfig) {
	if c.GetConcurrency() != nil {
		into.Concurrency = c.GetConcurrency()
	}
	if c.GetImage() != nil {
		into.Image = c.GetImage()
	}
	for name, value := range c.GetEnvironmentVariables() {
		if into.ProxyMetadata == nil {
			into.ProxyMetadata = map[string]string{}
		}
		into.ProxyMetadata[name] = value
	}
}
