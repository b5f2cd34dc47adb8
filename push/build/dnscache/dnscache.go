// Package dnscache draws the configuration of Envoy's DNS cache: a cluster that resolves names as clients ask for them (dynamic forward proxy)
// and the filters before it must state it identically.
//
// Owns: nothing.  Reads: its arguments.  Never: a service, a snapshot.
package dnscache

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	forwardv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"

	"navarch.io/navarch/push/xds"
)

// families are Envoy's words for the addresses that a proxy can reach. One with addresses of both families reaches both; Istio's control plane
// has it resolve IPv4 alone unless ISTIO_DUAL_STACK is set.
var families = map[xds.Families]clusterv3.Cluster_DnsLookupFamily{
	xds.IPv4Only: clusterv3.Cluster_V4_ONLY, xds.IPv6Only: clusterv3.Cluster_V6_ONLY, xds.BothFamilies: clusterv3.Cluster_ALL,
}

// Family is which addresses a name is resolved to, for a proxy with addresses of some families.
func Family(own xds.Families) clusterv3.Cluster_DnsLookupFamily { return families[own] }

// Config is the cache of the names that a wildcard host covers; equal hosts share it within an Envoy.
func Config(host string, own xds.Families) *forwardv3.DnsCacheConfig {
	return &forwardv3.DnsCacheConfig{Name: host + "_dfp_dns_cache", DnsLookupFamily: Family(own)}
}
