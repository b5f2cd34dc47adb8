package host

import (
	"cmp"
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// exported reports whether an object is visible in a namespace, by the object's exportTo. owner is the namespace of the
// object, and viewer is the namespace that may see it. If exportTo is empty, the defaults apply.
func exported(exportTo, defaults []string, owner, viewer string) bool {
	if len(exportTo) == 0 {
		exportTo = defaults
	}
	return model.Exported(exportTo, owner, viewer)
}

// Precedes reports whether service a precedes service b for clients of a namespace. a and b are two services with the
// same host or the same address. The first of these criteria by which a and b differ decides:
//
//   - services of the clients' namespace precede services of other namespaces
//   - Kubernetes Services precede ServiceEntries
//   - services of the config cluster precede services of other clusters
//   - older services precede younger services
//   - services are compared by namespace, and then by name
//
// Namespaces are compared before names because istiod names a ServiceEntry's service by its host, so the names of two
// such services are equal (istio: pilot/pkg/model/push_context.go, sortServicesByCreationTime).
//
// Services with the same name in several clusters are one service. The first of them defines the service. Its endpoints
// come from all clusters, and its addresses from the proxy's own cluster (istio:
// pilot/pkg/serviceregistry/aggregate/controller.go, mergeService).
func Precedes(a, b *model.Service, namespace string) bool {
	if own, other := a.Key.Namespace == namespace, b.Key.Namespace == namespace; own != other {
		return own
	}
	if a.Key.Kind != b.Key.Kind {
		return a.Key.Kind == model.KindService
	}
	if config, other := a.Key.Origin.Cluster() == "", b.Key.Origin.Cluster() == ""; config != other {
		return config
	}
	return cmp.Or(model.CompareCreated(a.Created, b.Created),
		strings.Compare(a.Key.Namespace, b.Key.Namespace), a.Older(&b.Head)) < 0
}

// serviceFor returns the service that defines a host for the table's proxies, or nil if the proxies see no service of
// the host.
func (t *Table) serviceFor(host string) *model.Service {
	return definingService(t.in, host, t.key.Namespace, t.has)
}

// definingService returns the service that defines a host for proxies of a namespace, or nil. It is the first service
// (Precedes) of the host that is exported to the namespace and that the predicate accepts.
func definingService(in *input.Input, host, namespace string, has func(svc *model.Service, host string) bool) (best *model.Service) {
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range in.ByHost(kind, host) {
			svc := r.(*model.Service)
			if exported(svc.Spec.GetExportTo(), nil, svc.Key.Namespace, namespace) && has(svc, host) &&
				(best == nil || Precedes(svc, best, namespace)) {
				best = svc
			}
		}
	}
	return best
}

// Addresses returns the virtual addresses of a service under one of its hosts. For a Service of another cluster, the
// addresses of the Service with the same namespace and name in the proxies' own cluster have precedence. For a service
// without addresses, the result is its automatic addresses in the proxies' IP family, if the proxies' agent resolves
// names to such addresses. The result is empty if there are no such addresses. The caller must not change the result.
func (t *Table) Addresses(svc *model.Service, host string) []string {
	if svc.Key.Kind == model.KindService && svc.Key.Origin.Cluster() != t.key.Cluster {
		for r := range t.in.Named(model.KindService, svc.Key.Namespace, svc.Key.Name) {
			if local := r.(*model.Service).Spec.GetAddresses(); r.Meta().Key.Origin.Cluster() == t.key.Cluster && len(local) > 0 {
				return local
			}
		}
	}
	if len(svc.Spec.GetAddresses()) == 0 && t.key.Automatic != view.NoFamily {
		return t.automatic(svc, host)
	}
	return svc.Spec.GetAddresses()
}

// automatic returns the automatic addresses of a service under one of its hosts, in the proxy's family.
func (t *Table) automatic(svc *model.Service, host string) (all []string) {
	for _, h := range svc.Spec.GetAutomatic() {
		if h.GetHost() != host {
			continue
		}
		for _, a := range h.GetAddresses() {
			if t.key.Automatic.Has(a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// Aliases returns the aliases of a host that are exported to the proxies' namespace, including aliases of aliases,
// sorted. It is nil without such aliases. Aliases are hosts of Services of type ExternalName. An alias is left out if
// another service, such as a ServiceEntry, defines the same host and is not an alias. Otherwise two virtual hosts would
// have the same domain.
func (t *Table) Aliases(host string) (all []string) {
	for name := range t.in.Index.Aliases(host) {
		if svc := t.serviceFor(name); svc != nil && svc.Spec.GetAliasFor() == "" {
			continue
		}
		for r := range t.in.ByHost(model.KindService, name) {
			svc := r.(*model.Service)
			if svc.Spec.GetAliasFor() == "" || slices.Contains(all, name) {
				continue
			}
			if exported(svc.Spec.GetExportTo(), nil, svc.Key.Namespace, t.key.Namespace) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Published returns the endpoints of a headless service to which DNS resolves its name, for proxies of a network.
// Endpoints that are known to be in another network are left out. The network "" is unknown, so it excludes no
// endpoints. Endpoints that are not ready are included if the Service has publishNotReadyAddresses. The result named
// own lists the endpoints in the proxies' own Kubernetes cluster. The result named others lists the endpoints in all
// other clusters. Neither list is sorted. h must be a host of this table with a service.
func (t *Table) Published(h *Host, network string) (own, others []*model.Endpoint) {
	for cluster, e := range t.in.Published(h.Service, h.Name) {
		switch {
		case network != "" && e.GetNetwork() != "" && e.GetNetwork() != network: // not reachable without a gateway
		case cluster == t.key.Cluster:
			own = append(own, e)
		default:
			others = append(others, e)
		}
	}
	return own, others
}

// has reports whether a service is imported under one of its hosts.
func (t *Table) has(svc *model.Service, host string) bool {
	return imported(t.imports, svc, host)
}

// hasPort reports whether a port of a host is imported.
func (t *Table) hasPort(h *Host, port uint32) bool {
	return t.ImportOf(h, port) != nil
}

// ClusterFor resolves a destination to a cluster. The parameter name is the destination's host, which may be an alias.
// The parameter subset may be "". If port is 0 and the host has only one port, this port is used. If port is 0 and the
// host has several ports, listenPort, the port at which the request arrived, is used (istio:
// pilot/pkg/networking/core/route, GetDestinationCluster).
//
// The result is false if the scope has no such service, port or subset, or does not import the port. In this case the
// returned cluster does not exist. Its name consists of the arguments, with an alias replaced by the alias's target.
// Envoy answers 503 or closes connections until the cluster exists.
func (t *Table) ClusterFor(name, subset string, port, listenPort uint32) (Outbound, bool) {
	return t.clusterFor(t, name, subset, port, listenPort)
}

// Outbound is the cluster to which a destination resolves.
type Outbound struct {
	xds.ClusterName
	Known *Host // host of the cluster; nil if the scope has no host of this name
}

// clusterFor implements ClusterFor for the hosts of the table or of a variation.
func (t *Table) clusterFor(hosts Hosts, name, subset string, port, listenPort uint32) (Outbound, bool) {
	name = target(hosts, name)
	h := hosts.Get(name)
	to := Outbound{xds.ClusterName{Port: cmp.Or(port, listenPort), Subset: subset, Host: name}, h}
	if h == nil || h.Service == nil {
		return to, false
	}
	if subset != "" {
		if _, known := h.Rules.subset(subset); !known {
			return to, false
		}
	}
	at := to.Port
	if ports := h.Service.Spec.GetPorts(); port == 0 && len(ports) == 1 && h.joined.Len() == 0 {
		at = ports[0].GetNumber()
	}
	if h.At(at) == nil || !t.hasPort(h, at) {
		return to, false
	}
	to.Port = at
	return to, true
}
