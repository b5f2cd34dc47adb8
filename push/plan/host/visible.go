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

// exported says whether a list of namespaces, as exportTo has it, reaches namespace `to` from `own`.
func exported(exportTo, otherwise []string, own, to string) bool {
	if len(exportTo) == 0 {
		exportTo = otherwise
	}
	for _, e := range exportTo {
		if e == "*" || e == to || e == "." && own == to {
			return true
		}
	}
	return false
}

// Precedes orders services of one host, or of one address, for a namespace: its own first, then Kubernetes Services, then the config cluster's, then the
// oldest; of ServiceEntries that are as old the one whose namespace is first by name, since istiod calls them by their hosts (istio:
// pilot/pkg/model/push_context.go, sortServicesByCreationTime). One of another cluster is the same service: the first defines it, its endpoints are those of all clusters, and its addresses
// those of the proxy's own (istio: pilot/pkg/serviceregistry/aggregate/controller.go, mergeService).
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

// serviceFor is the one service that a host means in this scope; nil: it sees none.
func (t *Table) serviceFor(host string) *model.Service {
	return meaning(t.in, host, t.key.Namespace, t.has)
}

// meaning is the one service that a host means to proxies of a namespace, of those that are exported to them and that `has` picks; nil: none.
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

// Addresses are the virtual addresses of a host of a service: those that the proxy's own cluster gives it, where it has any; of a ServiceEntry
// that states none the automatic ones of the proxy's family, where its Pod is told of these.
func (t *Table) Addresses(svc *model.Service, host string) []string {
	if len(svc.Spec.GetAddresses()) == 0 && t.key.Automatic != view.NoFamily {
		return t.automatic(svc, host)
	}
	if svc.Key.Kind == model.KindService && svc.Key.Origin.Cluster() != t.key.Cluster {
		for r := range t.in.Named(model.KindService, svc.Key.Namespace, svc.Key.Name) {
			if local := r.(*model.Service).Spec.GetAddresses(); r.Meta().Key.Origin.Cluster() == t.key.Cluster && len(local) > 0 {
				return local
			}
		}
	}
	return svc.Spec.GetAddresses()
}

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

// Aliases are the other names of a host of a service (Services of type ExternalName), among what is exported to the scope, sorted. A name that is a
// host of its own there, by another cluster's Service or a ServiceEntry, is none: two virtual hosts would have one domain.
func (t *Table) Aliases(host string) (all []string) {
	for name := range t.in.Index.Aliases(host) {
		if svc := t.serviceFor(name); svc != nil && svc.Spec.GetAliasFor() == "" {
			continue
		}
		for r := range t.in.ByHost(model.KindService, name) {
			svc := r.(*model.Service)
			if svc.Spec.GetAliasFor() != "" && exported(svc.Spec.GetExportTo(), nil, svc.Key.Namespace, t.key.Namespace) && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Published lists the endpoints of a headless service that DNS names, as proxies of a network ask for it (empty: none
// is known, and all are near): the ready ones at any port, of every cluster. own are those of the proxy's cluster. The
// scope has to see the host.
func (t *Table) Published(h *Host, network string) (own, others []*model.Endpoint) {
	for cluster, e := range t.in.Published(h.Service, h.Name) {
		switch {
		case network != "" && e.GetNetwork() != "" && e.GetNetwork() != network: // beyond a gateway, which no address of a Pod leads to
		case cluster == t.key.Cluster:
			own = append(own, e)
		default:
			others = append(others, e)
		}
	}
	return own, others
}

// has says whether a host of a service is imported.
func (t *Table) has(svc *model.Service, host string) bool {
	return imported(t.imports, svc, host)
}

// hasPort says whether a port of a host is imported.
func (t *Table) hasPort(h *Host, port uint32) bool {
	return t.ImportOf(h, port) != nil
}

// ClusterFor is the cluster that a destination means: at its port, or the service's only one (port 0), or else the one
// that the request came to (istio: pilot/pkg/networking/core/route, GetDestinationCluster). False: there is no such service, port or subset in
// this scope, and the cluster is as it would be called at the port that the request came to: Envoy answers 503, or closes connections, until there is one.
func (t *Table) ClusterFor(name, subset string, port, listenPort uint32) (Outbound, bool) {
	return t.clusterFor(t, name, subset, port, listenPort)
}

// Outbound is a cluster that a destination is sent to.
type Outbound struct {
	xds.ClusterName
	Known *Host // whose cluster it is; nil: the scope has no host of this name
}

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
