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

// exported reports whether exportTo makes an object of namespace owner visible in namespace viewer. defaults is used if
// exportTo is empty.
func exported(exportTo, defaults []string, owner, viewer string) bool {
	if len(exportTo) == 0 {
		exportTo = defaults
	}
	for _, e := range exportTo {
		if e == "*" || e == viewer || e == "." && owner == viewer {
			return true
		}
	}
	return false
}

// Precedes reports whether a precedes b, two services of one host or of one address, for clients of a namespace: the
// namespace's own first, then Kubernetes Services, then the config cluster's, then the oldest. Ties of age are broken
// by namespace before name: istiod names a ServiceEntry's service by its host, so the names of both are equal there
// (istio: pilot/pkg/model/push_context.go, sortServicesByCreationTime).
//
// Services of equal name in several clusters are one service. The first defines it, its endpoints come from all
// clusters, and its addresses from the proxy's own (istio: pilot/pkg/serviceregistry/aggregate/controller.go,
// mergeService).
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
	return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Key.Namespace, b.Key.Namespace), a.Older(&b.Head)) < 0
}

// serviceFor returns the service that defines a host in this scope, or nil if the scope sees none.
func (t *Table) serviceFor(host string) *model.Service {
	return meaning(t.in, host, t.key.Namespace, t.has)
}

// meaning returns the service that defines a host for proxies of a namespace, or nil: the first (Precedes) of those
// that are exported to the namespace and satisfy has.
func meaning(in *input.Input, host, namespace string, has func(svc *model.Service, host string) bool) (best *model.Service) {
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

// Addresses returns the virtual addresses of a service at one of its hosts: those in the proxy's own cluster, if there
// are any, else the service's. For a ServiceEntry without addresses they are the automatic addresses of the proxy's
// family, if the proxy's agent resolves names to these.
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

// automatic returns the automatic addresses of a service at one of its hosts, in the proxy's family.
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

// Aliases returns the aliases of a host (Services of type ExternalName) that are exported to the scope, sorted. It
// includes aliases of aliases. A name that another cluster's Service or a ServiceEntry defines as a host is left out,
// since two virtual hosts would have one domain.
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

// Published lists the endpoints of a headless service that DNS returns to proxies of a network, at any port and of
// every cluster, except those in other networks. Endpoints that are not ready are included if the Service publishes
// their addresses (publishNotReadyAddresses). An empty network means unknown; then none are left out. own are those in
// the proxy's cluster. h has to be a host of this table with a service.
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

// has reports whether a service is imported at one of its hosts.
func (t *Table) has(svc *model.Service, host string) bool {
	return imported(t.imports, svc, host)
}

// hasPort reports whether a port of a host is imported.
func (t *Table) hasPort(h *Host, port uint32) bool {
	return t.ImportOf(h, port) != nil
}

// ClusterFor resolves a destination to a cluster: at port or, if that is 0, at the service's only port, or else at
// listenPort, the port at which the request arrived (istio: pilot/pkg/networking/core/route, GetDestinationCluster).
// The result is false if this scope has no such service, port or subset. The cluster then has the name that it would
// have at the requested port: until it exists, Envoy answers 503 or closes connections.
func (t *Table) ClusterFor(name, subset string, port, listenPort uint32) (Outbound, bool) {
	return t.clusterFor(t, name, subset, port, listenPort)
}

// Outbound is the cluster of a destination.
type Outbound struct {
	xds.ClusterName
	Known *Host // the host of the cluster; nil if the scope has no host of this name
}

// clusterFor is ClusterFor with the hosts of the table or of a variation.
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
