// Package dnscache builds the configuration of Envoy's DNS cache for dynamic forward proxies. A dynamic forward proxy
// is a cluster that connects to the name in the request. The cluster, and the filter that resolves names for it, must
// have equal configurations.
//
// Owns: nothing. Reads: its arguments. Never: reads a service or the stored configuration.
package dnscache

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	forwardv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"

	"navarch.io/navarch/push/xds"
)

// families maps the IP families of a proxy's own addresses to Envoy's lookup family. A proxy with both families
// resolves both. For such a proxy istiod resolves IPv4 alone, unless ISTIO_DUAL_STACK is set.
var families = map[xds.Families]clusterv3.Cluster_DnsLookupFamily{
	xds.IPv4Only: clusterv3.Cluster_V4_ONLY, xds.IPv6Only: clusterv3.Cluster_V6_ONLY, xds.BothFamilies: clusterv3.Cluster_ALL,
}

// Family returns the lookup family for a proxy. The argument own has the IP families of the proxy's addresses. For
// IPv4Only, which is also the value of a proxy without a known address, the result is V4_ONLY. For an undefined value
// of own it is AUTO.
func Family(own xds.Families) clusterv3.Cluster_DnsLookupFamily { return families[own] }

// Config returns the DNS cache for the names that a wildcard host covers. The argument own has the IP families of the
// proxy's addresses, as for Family. The cache's name is the host with a constant suffix. So all listeners and clusters
// of an Envoy with that host share the cache. The caller owns the result.
func Config(host string, own xds.Families) *forwardv3.DnsCacheConfig {
	return &forwardv3.DnsCacheConfig{Name: host + "_dfp_dns_cache", DnsLookupFamily: Family(own)}
}
