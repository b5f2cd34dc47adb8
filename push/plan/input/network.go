package input

import (
	"cmp"
	"net"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// gatewaysIn lists the gateways of all networks, sorted and without duplicates.
func gatewaysIn(s *mirror.Snapshot) intern.List[endpoint.Gateway] {
	var out []endpoint.Gateway
	for r := range s.All(model.KindNetworkGateways) {
		for _, g := range r.(*model.NetworkGateways).Spec.GetGateways() {
			out = append(out, endpoint.Gateway{Network: g.GetNetwork(), Cluster: g.GetCluster(), Address: g.GetAddress(), Port: g.GetPort()})
		}
	}
	slices.SortFunc(out, func(a, b endpoint.Gateway) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return gateways.List(slices.Compact(out)...)
}

var gateways intern.Table[endpoint.Gateway]

// ClusterLocal reports whether proxies reach only the endpoints of a host that are in their own cluster. The
// serviceSettings of the mesh declare such hosts clusterLocal. By default, hosts of kube-system, the API server and the
// control plane are also local. The parameter domain is the DNS suffix of services.
func (in *Input) ClusterLocal(host, domain string) bool {
	patterns, known := in.local[domain]
	if !known {
		patterns = in.localHosts(domain)
		in.local[domain] = patterns
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool { return Covers(pattern, host) })
}

// localHosts returns the hosts and wildcards that are local to clusters. They are the hosts of settings with
// clusterLocal, and istiod's defaults. A setting without clusterLocal removes a default that equals or covers one of
// the setting's hosts (istio: pilot/pkg/model/cluster_local.go).
func (in *Input) localHosts(domain string) []string {
	discovery, _, err := net.SplitHostPort(in.Mesh.Spec.GetDefaultConfig().GetDiscoveryAddress())
	if err != nil || discovery == "" {
		discovery = "istiod.istio-system.svc"
	}
	if !strings.HasSuffix(discovery, domain) {
		discovery += "." + domain
	}
	defaults := []string{"*.kube-system.svc." + domain, "kubernetes.default.svc." + domain, discovery}
	var named []string
	for _, s := range in.Mesh.Spec.GetServiceSettings() {
		if s.GetSettings().GetClusterLocal() {
			named = append(named, s.GetHosts()...)
			continue
		}
		defaults = slices.DeleteFunc(defaults, func(d string) bool {
			return slices.ContainsFunc(s.GetHosts(), func(host string) bool { return Covers(d, host) })
		})
	}
	return append(named, defaults...)
}
