package injection

import (
	"slices"

	proxyconfigv1 "istio.io/api/networking/v1beta1"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// ProxyConfigs are those of a namespace at a snapshot, the oldest first.
func ProxyConfigs(s *mirror.Snapshot, namespace string) (all []*proxyconfigv1.ProxyConfig) {
	var found []*model.ProxyConfig
	for r := range s.In(model.KindProxyConfig, namespace) {
		found = append(found, r.(*model.ProxyConfig))
	}
	slices.SortFunc(found, func(a, b *model.ProxyConfig) int { return a.Older(&b.Head) })
	for _, c := range found {
		all = append(all, c.Spec)
	}
	return all
}
