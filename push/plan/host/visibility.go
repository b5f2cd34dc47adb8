package host

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Visibility is what decides which clusters proxies have, for what their listeners send of themselves: spans, logs, questions to an authorizer. An
// Envoy refuses listeners whose tracer names a cluster that it does not know.
type Visibility struct {
	Namespace string
	Imports   []*Imports     // which services they see
	Patches   input.PatchSet // those that remove clusters from their outbound side; others do not count
}

// Find is the host to whose cluster a proxy sends what is for a port of the host `name`: this one, or the one that it is another name of (a
// Service of type ExternalName). The proxy has to see one of the services `named`, which are some of those with the host `name`. False: it
// sees none, or has no such cluster. `asked` are the hosts by which this is decided: where a service of one of them comes, goes or changes, the
// answer may be another.
func (v Visibility) Find(in *input.Input, name string, named []*model.Service, port uint32) (host string, asked []string, ok bool) {
	for range longestAlias {
		asked = append(asked, name)
		svc := meaning(in, name, v.Namespace, v.has)
		if svc == nil || len(asked) == 1 && !slices.ContainsFunc(named, func(svc *model.Service) bool { return v.sees(svc, name, port) }) {
			return "", asked, false
		}
		alias := svc.Spec.GetAliasFor()
		if alias == "" {
			return name, asked, v.hasCluster(in, svc, name, port)
		}
		name = alias
	}
	return "", asked, false
}

// hasCluster says whether a proxy, to which a host means a service, has a cluster of one of its ports, whatever VirtualServices it sees: the
// destination of one is seen without being imported, and the host may mean another service then, which has to have the port as well.
func (v Visibility) hasCluster(in *input.Input, svc *model.Service, name string, port uint32) bool {
	other := meaning(in, name, v.Namespace, func(*model.Service, string) bool { return true })
	return v.sees(svc, name, port) && portOf(in, svc, name, port) && (other == svc || other.Spec.GetAliasFor() == "" && portOf(in, other, name, port)) &&
		!v.Patches.RemovesCluster(networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, xds.OutboundCluster(port, "", name))
}

// sees says whether a service is exported to the namespace, and imported at one of its hosts with a port.
func (v Visibility) sees(svc *model.Service, name string, port uint32) bool {
	return exported(svc.Spec.GetExportTo(), nil, svc.Key.Namespace, v.Namespace) && importOf(v.Imports, svc, name, port) != nil
}

// portOf says whether a host has a port, where it means a service.
func portOf(in *input.Input, svc *model.Service, name string, port uint32) bool {
	h := Host{Name: name, Service: svc, joined: joined(in, name, svc)}
	return h.At(port) != nil
}

// has says whether a host of a service is imported.
func (v Visibility) has(svc *model.Service, host string) bool {
	return imported(v.Imports, svc, host)
}
