package cluster

//lint:file-ignore SA1019 deprecated fields are what users' YAML and the field's proxies still have

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

// How DNS names are resolved where the mesh says nothing; Istio's defaults.
const (
	dnsRefresh = 60 * time.Second
	dnsJitter  = 100 * time.Millisecond
	dnsQueries = 100 // of one UDP socket; then another one, which a load balancer may send to a living DNS server
)

// A new or changed DNS cluster warms until its names are resolved, or given up. Envoy asks for no listeners before all clusters that it started
// with are warm, so that a DNS server that drops packets would keep every new proxy that sees the entry from becoming ready: for 75 s with the
// defaults of Envoy's resolver, for six with these. wait_for_warm_on_init: false would not wait, but every change of such a cluster would replace
// its hosts by none until the name is resolved again.
const (
	dnsTries   = 2
	dnsTimeout = 2 * time.Second // of the first try; the second one takes up to twice as long
	// dnsRetry is the first pause after names were given up; each further one may be twice as long, up to the usual interval. A DNS server that is
	// away for longer than the tries while a proxy starts would otherwise cost a minute of 503.
	dnsRetry = 2 * time.Second
)

// resolve puts the endpoints into a DNS cluster. LOGICAL_DNS takes exactly one: with more, the first by name; with none
// the cluster is there and answers 503.
func (s Outbound) resolve(d *builder) {
	d.DnsLookupFamily = dnscache.Family(s.Families)
	d.RespectDnsTtl = true
	d.DnsRefreshRate, d.DnsJitter = durationpb.New(dnsRefresh), durationpb.New(dnsJitter)
	if rate := s.Mesh.Spec.GetDnsRefreshRate(); traffic.Positive(rate) && rate.AsDuration() > time.Millisecond {
		d.DnsRefreshRate = rate
	}
	d.TypedDnsResolverConfig = dnscache.Resolver(&caresv3.CaresDnsResolverConfig{UdpMaxQueries: wrapperspb.UInt32(dnsQueries),
		QueryTries: wrapperspb.UInt32(dnsTries), QueryTimeoutSeconds: wrapperspb.UInt64(uint64(dnsTimeout / time.Second))})
	interval := d.DnsRefreshRate.AsDuration()
	d.DnsFailureRefreshRate = &clusterv3.Cluster_RefreshRate{BaseInterval: durationpb.New(min(dnsRetry, interval)), MaxInterval: durationpb.New(interval)}
	d.LoadAssignment = endpoint.Assignment(endpoint.Spec{Cluster: d.Name, Members: s.Members, Plain: s.Plain, AllPlain: s.AllPlain, Horizon: s.Horizon, Balance: s.Balance}, resolvable)
	if s.Discovery == traffic.StrictDNS {
		return
	}
	all := d.LoadAssignment.Endpoints
	if len(all) == 0 {
		d.refuse()
		return
	}
	if len(all) > 1 || len(all[0].LbEndpoints) > 1 {
		d.problem(problem.Invalid, model.Place{Key: s.Service.Key, Field: "spec.endpoints"}, "resolution DNS_ROUND_ROBIN takes one endpoint; the first is used for port %d", s.Port)
		all[0].LbEndpoints, d.LoadAssignment.Endpoints = all[0].LbEndpoints[:1], all[:1]
		all[0].LoadBalancingWeight = all[0].LbEndpoints[0].LoadBalancingWeight
	}
}

// resolvable says whether an address can stand in a DNS cluster: an IP or a name.
func resolvable(address string) bool {
	if _, err := netip.ParseAddr(address); err == nil {
		return true
	}
	return address != "" && !strings.ContainsAny(address, "/:*")
}
