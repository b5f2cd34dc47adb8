package dnscache

import (
	"net/netip"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	forwardv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	typematcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
)

// Unknown holds the settings of traffic to hosts that the mesh does not know (MeshConfig.outboundTrafficPolicy). It is
// comparable.
type Unknown struct {
	// ByName forwards plain HTTP to the address that its host resolves to (ALLOW_ANY_DYNAMIC_DNS). Otherwise it is
	// forwarded to its original destination, or refused.
	ByName bool
	// Resolver is the DNS server for these names, ip:port: the proxy's agent. Empty: the DNS servers of the Pod.
	Resolver string
}

// protected lists the addresses to which no name of an unknown host may resolve, also as IPv4 addresses inside IPv6
// ones. An attacker who controls a DNS name, or the host of a request, could otherwise make the proxy connect to
// services that trust its network: Envoy's admin port and the application at loopback addresses, and the metadata
// service of clouds, which issues credentials, at link-local or reserved addresses. This is Envoy's documented guard
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/dynamic_forward_proxy_filter,
// resolved_address_filter).
var protected = ranges("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"::/96", "::ffff:0.0.0.0/104", "::ffff:127.0.0.0/104", "::ffff:169.254.0.0/112", "64:ff9b::a9fe:0/112", "fe80::/10",
	"fd00:ec2::254/128", "fd20:ce::254/128")

// ranges parses CIDRs, and panics for an invalid one.
func ranges(all ...string) (out []*xdscorev3.CidrRange) {
	for _, text := range all {
		p := netip.MustParsePrefix(text)
		out = append(out, &xdscorev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))})
	}
	return out
}

// mostHosts is the most unknown hosts that an Envoy caches, as in istiod. Requests for further hosts are answered with
// 503 until a cached host was not requested for five minutes (host_ttl).
const mostHosts = 1024

// Cache returns the cache for the names of unknown hosts, which all listeners of an Envoy share.
func (u Unknown) Cache(families xds.Families) *forwardv3.DnsCacheConfig {
	cache := &forwardv3.DnsCacheConfig{Name: "allow_any_dfp_dns_cache", DnsLookupFamily: Family(families),
		ResolvedAddressFilter: &typematcherv3.AddressMatcher{Ranges: protected}, MaxHosts: wrapperspb.UInt32(mostHosts)}
	if at, err := netip.ParseAddrPort(u.Resolver); err == nil {
		cache.TypedDnsResolverConfig = Resolver(&caresv3.CaresDnsResolverConfig{
			Resolvers: []*corev3.Address{{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: at.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())}}}}},
		})
	}
	return cache
}

// Resolver returns the configuration of a DNS resolver with settings of c-ares.
func Resolver(settings *caresv3.CaresDnsResolverConfig) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: xds.Any(settings)}
}
