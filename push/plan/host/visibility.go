package host

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Visibility decides which outbound clusters the proxies of a namespace have. Planners use it for traffic that a
// listener itself causes, such as spans, logs and requests to an authorizer. An Envoy rejects listeners whose tracer
// names an unknown cluster.
type Visibility struct {
	Namespace string         // the namespace of the proxies
	Imports   []*Imports     // the Imports of the proxies' Sidecar
	Patches   input.PatchSet // the patches of the proxies; only removals of outbound clusters count
}

// Find returns the host whose cluster a proxy uses for requests to a host name and a port. The resulting host is the
// given name or, if that is an alias (a Service of type ExternalName), the alias target. The parameter services has
// services with this host name, of which the proxy must see at least one. The result ok is false, and host is "", in
// three cases: the proxy sees none of these services, no service defines the host, or ten aliases follow one another.
// If the proxy has no cluster for the port, ok is false and host is set. The result named asked lists the hosts on
// which the results depend, beginning with name. The results may change if a service of one of these hosts appears,
// disappears or changes.
func (v Visibility) Find(in *input.Input, name string, services []*model.Service, port uint32) (host string, asked []string, ok bool) {
	visible := func(svc *model.Service) bool { return v.sees(svc, name, port) }
	for range longestAlias {
		asked = append(asked, name)
		svc := definingService(in, name, v.Namespace, v.has)
		if svc == nil || len(asked) == 1 && !slices.ContainsFunc(services, visible) {
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

// hasCluster reports whether a proxy has a cluster for a port of a host that svc defines. The result must hold for any
// set of VirtualServices. A VirtualService can import another service, which may define the host in place of svc. So
// that service must have the port too.
func (v Visibility) hasCluster(in *input.Input, svc *model.Service, name string, port uint32) bool {
	other := definingService(in, name, v.Namespace, func(*model.Service, string) bool { return true })
	return v.sees(svc, name, port) && portOf(in, svc, name, port) &&
		(other == svc || other.Spec.GetAliasFor() == "" && portOf(in, other, name, port)) &&
		!v.Patches.RemovesCluster(networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, xds.OutboundCluster(port, "", name))
}

// sees reports whether a service is exported to the namespace, and imported under the host name at a port.
func (v Visibility) sees(svc *model.Service, name string, port uint32) bool {
	return exported(svc.Spec.GetExportTo(), nil, svc.Key.Namespace, v.Namespace) && importOf(v.Imports, svc, name, port) != nil
}

// portOf reports whether a host that svc defines has a port.
func portOf(in *input.Input, svc *model.Service, name string, port uint32) bool {
	h := Host{Name: name, Service: svc, joined: joined(in, name, svc)}
	return h.At(port) != nil
}

// has reports whether a service is imported under one of its hosts.
func (v Visibility) has(svc *model.Service, host string) bool {
	return imported(v.Imports, svc, host)
}
