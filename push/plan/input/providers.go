package input

import (
	"strings"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// ProviderServices finds the services of an extension provider of the mesh configuration. The argument is the
// provider's field service, "NAMESPACE/HOST" or "HOST". The result host is the HOST of the argument. The result found
// lists the Services, then the ServiceEntries with exactly this host. It is nil if there are no such services. If the
// argument has a namespace, found has only services of that namespace. The result namespaces is the number of
// namespaces of the found services. If that number is above 1, the provider is ambiguous (istio:
// pilot/pkg/extensionproviders, LookupCluster).
func (in *Input) ProviderServices(service string) (host string, found []*model.Service, namespaces int) {
	return ServicesOf(in.Snapshot, service)
}

// ServicesOf returns the result of ProviderServices for a snapshot.
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
