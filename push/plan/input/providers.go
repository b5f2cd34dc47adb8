package input

import (
	"strings"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// ProviderServices finds what an extension provider of the mesh configuration names as its service, NAMESPACE/HOST or HOST: the Services and
// ServiceEntries with that host, of that namespace where one is written. With several namespaces it is not known which one is meant
// (istio: pilot/pkg/extensionproviders, LookupCluster). Where a service with the host comes, goes or changes, the answer may be another.
func (in *Input) ProviderServices(service string) (host string, found []*model.Service, namespaces int) {
	return ServicesOf(in.Snapshot, service)
}

// ServicesOf is ProviderServices of a snapshot.
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
