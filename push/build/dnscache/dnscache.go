// Package dnscache builds the configuration of Envoy's DNS cache. A cluster that resolves the names in requests
// (dynamic forward proxy) and the filters before it must have the same configuration.
//
// Owns: nothing.  Reads: its arguments.  Never: a service, a snapshot.
package dnscache

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	forwardv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"

	"navarch.io/navarch/push/xds"
)

// families maps the IP families of a proxy's addresses to Envoy's families of resolved addresses. A proxy with both
// families resolves both; Istio's control plane would resolve IPv4 alone unless ISTIO_DUAL_STACK is set.
var families = map[xds.Families]clusterv3.Cluster_DnsLookupFamily{
	xds.IPv4Only: clusterv3.Cluster_V4_ONLY, xds.IPv6Only: clusterv3.Cluster_V6_ONLY, xds.BothFamilies: clusterv3.Cluster_ALL,
}

// Family returns the families of addresses to which a proxy with some families of addresses resolves a name.
func Family(own xds.Families) clusterv3.Cluster_DnsLookupFamily { return families[own] }

// Config returns the cache for the names that a wildcard host covers. Equal hosts share a cache within an Envoy.
func Config(host string, own xds.Families) *forwardv3.DnsCacheConfig {
	return &forwardv3.DnsCacheConfig{Name: host + "_dfp_dns_cache", DnsLookupFamily: Family(own)}
}
