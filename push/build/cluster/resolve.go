package cluster

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// These are settings of DNS resolution, with the values that Istio uses.
const (
	dnsRefresh = 60 * time.Second // interval of resolution, unless the mesh sets another
	dnsJitter  = 100 * time.Millisecond
	dnsQueries = 100 // queries per UDP socket; a new socket may reach another DNS server behind a load balancer
)

// These limits bound one resolution. A new or changed DNS cluster warms until its names are resolved or the tries are
// used up. A starting Envoy requests listeners only after all clusters are warm. So a DNS server that drops packets
// delays the readiness of new proxies with the cluster. The delay is 75 s with the defaults of Envoy's resolver, and 6
// s with these limits. wait_for_warm_on_init: false would avoid the delay. But then every change of such a cluster
// would leave the cluster without hosts until its name is resolved again.
const (
	dnsTries   = 2
	dnsTimeout = 2 * time.Second // limit of the first try; the second may last twice as long
	// dnsRetry is the pause after the first failed resolution. Each further pause may be twice as long, up to the
	// interval of resolution. If every pause had the length of the interval, a proxy that starts while its DNS server
	// does not answer would return 503 for a minute.
	dnsRetry = 2 * time.Second
)

// setDNS sets the endpoints and the DNS settings of a DNS cluster. LOGICAL_DNS supports exactly one endpoint. If there
// are several, setDNS uses the first by priority, locality and address, and reports a problem. If there is no endpoint,
// requests to the cluster get status 503.
func (s Outbound) setDNS(d *builder) {
	d.DnsLookupFamily = dnscache.Family(s.Families)
	d.RespectDnsTtl = true
	d.DnsRefreshRate, d.DnsJitter = durationpb.New(dnsRefresh), durationpb.New(dnsJitter)
	if rate := s.Mesh.Spec.GetDnsRefreshRate(); traffic.Positive(rate) && rate.AsDuration() > time.Millisecond {
		d.DnsRefreshRate = rate
	}
	d.TypedDnsResolverConfig = dnscache.Resolver(&caresv3.CaresDnsResolverConfig{UdpMaxQueries: wrapperspb.UInt32(dnsQueries),
		QueryTries: wrapperspb.UInt32(dnsTries), QueryTimeoutSeconds: wrapperspb.UInt64(uint64(dnsTimeout / time.Second))})
	interval := d.DnsRefreshRate.AsDuration()
	d.DnsFailureRefreshRate = &clusterv3.Cluster_RefreshRate{
		BaseInterval: durationpb.New(min(dnsRetry, interval)), MaxInterval: durationpb.New(interval)}
	d.LoadAssignment = endpoint.Assignment(endpoint.Spec{Cluster: d.Name, Members: s.Members, Plain: s.Plain,
		AllPlain: s.AllPlain, Horizon: s.Horizon, Balance: s.Balance}, resolvable)
	if s.Discovery == traffic.StrictDNS {
		return
	}
	all := d.LoadAssignment.Endpoints
	if len(all) == 0 {
		d.removeEndpoints()
		return
	}
	if len(all) > 1 || len(all[0].LbEndpoints) > 1 {
		d.report(problem.Invalid, model.Place{Key: s.Service.Key, Field: "spec.endpoints"},
			"resolution DNS_ROUND_ROBIN takes one endpoint; the first is used for port %d", s.Port)
		all[0].LbEndpoints, d.LoadAssignment.Endpoints = all[0].LbEndpoints[:1], all[:1]
		all[0].LoadBalancingWeight = all[0].LbEndpoints[0].LoadBalancingWeight
	}
}

// resolvable reports whether an address may be in a DNS cluster: it is an IP, or a name without wildcard.
func resolvable(address string) bool {
	if _, err := netip.ParseAddr(address); err == nil {
		return true
	}
	return address != "" && !strings.ContainsAny(address, "/:*")
}
