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

// Unknown is how a proxy reaches hosts that the mesh does not know (MeshConfig outboundTrafficPolicy). Comparable.
type Unknown struct {
	// ByName: plain HTTP goes to where its host resolves to (ALLOW_ANY_DYNAMIC_DNS). False: to where it was sent, or nowhere.
	ByName bool
	// Resolver is who resolves the names, ip:port, which is the proxy's agent; empty: the servers of the Pod.
	Resolver string
}

// own are the addresses that no name of an unknown host leads to. Who may say what a name resolves to, or which host a request is for, could otherwise have
// the proxy connect to what trusts those who share its network: Envoy's admin port and the application's own, by a loopback address, and the service where
// clouds give their machines credentials, which is at an address of the link, or at one that a provider reserves for it. An IPv4 address may stand within
// one of IPv6. It is Envoy's documented guard against that (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/dynamic_forward_proxy_filter,
// resolved_address_filter).
var own = ranges("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"::/96", "::ffff:0.0.0.0/104", "::ffff:127.0.0.0/104", "::ffff:169.254.0.0/112", "64:ff9b::a9fe:0/112", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128")

func ranges(all ...string) (out []*xdscorev3.CidrRange) {
	for _, text := range all {
		p := netip.MustParsePrefix(text)
		out = append(out, &xdscorev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))})
	}
	return out
}

// mostHosts is how many unknown hosts an Envoy holds resolved, as istiod has it: those beyond are answered 503 until one was not asked for during five
// minutes (host_ttl).
const mostHosts = 1024

// Cache is the cache of the names of unknown hosts, which all listeners of an Envoy share.
func (u Unknown) Cache(families xds.Families) *forwardv3.DnsCacheConfig {
	cache := &forwardv3.DnsCacheConfig{Name: "allow_any_dfp_dns_cache", DnsLookupFamily: Family(families),
		ResolvedAddressFilter: &typematcherv3.AddressMatcher{Ranges: own}, MaxHosts: wrapperspb.UInt32(mostHosts)}
	if at, err := netip.ParseAddrPort(u.Resolver); err == nil {
		cache.TypedDnsResolverConfig = Resolver(&caresv3.CaresDnsResolverConfig{
			Resolvers: []*corev3.Address{{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: at.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())}}}}},
		})
	}
	return cache
}

// Resolver is a resolver of an own, with settings of c-ares.
func Resolver(settings *caresv3.CaresDnsResolverConfig) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: xds.Any(settings)}
}
