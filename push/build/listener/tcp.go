package listener

import (
	"net"
	"strconv"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	mongov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/mongo_proxy/v3"
	sniforwardv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// tcpProxyName is Envoy's name of the TCP proxy filter.
const tcpProxyName = "envoy.filters.network.tcp_proxy"

// filter encodes a configuration, and returns a network filter with the encoded configuration.
func filter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(config)}}
}

// packedFilter returns a network filter with an encoded configuration.
func packedFilter(name string, config *anypb.Any) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}
}

// blackHole returns a TCP proxy filter that closes all connections, because its cluster has no endpoints. As in
// Istio, the filter writes no access log.
func blackHole() *listenerv3.Filter {
	return filter(tcpProxyName, tcpProxyTo(xds.BlackHole))
}

// proxyTo returns the network filters of a TCP chain that ends in one cluster.
func (c Common) proxyTo(cluster string, context networkingv1.EnvoyFilter_PatchContext) []*listenerv3.Filter {
	return c.tcpFilters(tcpProxyTo(cluster), model.Protocol_PROTOCOL_AUTO, context)
}

// tcpProxyTo returns the configuration of a TCP proxy to one cluster.
func tcpProxyTo(cluster string) *tcpv3.TcpProxy {
	return &tcpv3.TcpProxy{StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}}
}

// mongo returns the filter that counts the operations of MongoDB's protocol. It returns nil for ports of other
// protocols and for proxies without the filter. In Istio this filter is on by default (PILOT_ENABLE_MONGO_FILTER).
// Istio's filters for MySQL and Redis are off by default.
func (c Common) mongo(p model.Protocol, statPrefix string) []*listenerv3.Filter {
	if p != model.Protocol_PROTOCOL_MONGO || !c.Caps.Has(xds.CapMongo) {
		return nil
	}
	return []*listenerv3.Filter{filter("envoy.filters.network.mongo_proxy", &mongov3.MongoProxy{StatPrefix: statPrefix})}
}

// bySNI returns the filter that resolves the name in a client's SNI. It is for a chain whose target is a wildcard host.
// For other chains, and for proxies without the filter, bySNI returns nil.
func (c Common) bySNI(ch Chain) []*listenerv3.Filter {
	if ch.Dynamic == "" || !c.Caps.Has(xds.CapDynamicForward) {
		return nil
	}
	return []*listenerv3.Filter{filter("envoy.extensions.filters.network.sni_dynamic_forward_proxy", &sniforwardv3.FilterConfig{
		DnsCacheConfig: dnscache.Config(ch.Dynamic, c.Families),
		PortSpecifier:  &sniforwardv3.FilterConfig_PortValue{PortValue: ch.DynamicPort},
	})}
}

// tcpFilters returns the network filters of a TCP chain whose last filter is p. It sets the access logs of p, and the
// node's idle timeout if p has no idle timeout.
func (c Common) tcpFilters(
	p *tcpv3.TcpProxy, protocol model.Protocol, context networkingv1.EnvoyFilter_PatchContext,
) []*listenerv3.Filter {
	p.AccessLog = c.accessLog(telemetry.Side{Inbound: context == inbound})
	if p.IdleTimeout == nil && c.Idle > 0 {
		p.IdleTimeout = durationpb.New(c.Idle)
	}
	var filters []*listenerv3.Filter
	if stats := c.Telemetry.Stats(c.mesh(), c.Caps, context != outbound); stats != nil {
		filters = append(filters, packedFilter("istio.stats", stats))
	}
	filters = append(filters, c.mongo(protocol, p.StatPrefix)...)
	return append(filters, filter(tcpProxyName, p))
}

// proxy returns the TCP proxy of one outbound chain. Among several targets, those with weight 0 receive no connections.
// A chain closes its connections if it has no targets, or several targets that all have weight 0. A tunnel applies only
// if at most one target receives connections. This target is an HTTP proxy. Envoy asks it to connect to the tunnel's
// host (https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy-TunnelSettings).
func (ch Chain) proxy() *tcpv3.TcpProxy {
	p := &tcpv3.TcpProxy{StatPrefix: ch.StatPrefix, HashPolicy: ch.hashPolicy()}
	if pool := ch.Policy.Get().Pool.GetTcp(); pool != nil {
		p.IdleTimeout = pool.GetIdleTimeout()
		if d := pool.GetMaxConnectionDuration(); d.AsDuration() >= time.Millisecond { // Envoy's minimum
			p.MaxDownstreamConnectionDuration = d
		}
	}
	var weighted []*tcpv3.TcpProxy_WeightedCluster_ClusterWeight
	for _, t := range ch.Targets.All() {
		if t.Weight > 0 {
			weighted = append(weighted, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: t.Cluster, Weight: t.Weight})
		}
	}
	single := xds.BlackHole
	switch {
	case len(weighted) > 1:
		p.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: &tcpv3.TcpProxy_WeightedCluster{Clusters: weighted}}
	case len(weighted) == 1:
		single = weighted[0].Name
	case ch.Targets.Len() == 1:
		single = ch.Targets.All()[0].Cluster
	}
	if p.ClusterSpecifier == nil {
		p.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: single}
	}
	if p.StatPrefix == "" {
		p.StatPrefix = single
	}
	if t := ch.Policy.Get().Tunnel; t != nil && len(weighted) < 2 {
		p.TunnelingConfig = &tcpv3.TcpProxy_TunnelingConfig{
			Hostname: net.JoinHostPort(t.GetTargetHost(), strconv.FormatUint(uint64(t.GetTargetPort()), 10)),
			UsePost:  t.GetProtocol() == "POST",
		}
	}
	return p
}

// hashPolicy returns the policy that sends all connections of one source address to the same endpoint. It returns nil
// if the traffic policy does not set consistentHash.useSourceIp.
func (ch Chain) hashPolicy() []*typev3.HashPolicy {
	if !ch.Policy.Get().Balancer.GetConsistentHash().GetUseSourceIp() {
		return nil
	}
	return []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
}
