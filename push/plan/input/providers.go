package input

import (
	"strings"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// ProviderServices finds the services of an extension provider, whose service is "NAMESPACE/HOST" or "HOST" in the mesh
// configuration. It returns the host, and the Services and ServiceEntries with that host in the namespace, or in any
// namespace if none is written. namespaces counts the namespaces of these services; with several it is unknown which
// one is meant (istio: pilot/pkg/extensionproviders, LookupCluster). The result may change when a service with the host
// appears, disappears or changes.
func (in *Input) ProviderServices(service string) (host string, found []*model.Service, namespaces int) {
	return ServicesOf(in.Snapshot, service)
}

// ServicesOf is ProviderServices at the given snapshot.
func ServicesOf(s *mirror.Snapshot, service string) (host string, found []*model.Service, namespaces int) {
	namespace, host, qualified := strings.Cut(service, "/")
	if !qualified {
		namespace, host = "", service
	}
	of := map[string]bool{}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range s.ByHost(kind, host) {
			if ns := r.Meta().Key.Namespace; namespace == "" || ns == namespace {
				found = append(found, r.(*model.Service))
				of[ns] = true
			}
		}
	}
	return host, found, len(of)
}
