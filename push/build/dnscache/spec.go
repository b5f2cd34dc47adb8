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

// Unknown holds the settings of traffic to hosts that the mesh does not know (MeshConfig.outboundTrafficPolicy).
// Unknown is comparable.
type Unknown struct {
	// ByName forwards a plain HTTP request to the address that its host resolves to (ALLOW_ANY_DYNAMIC_DNS). If ByName
	// is false, the request is forwarded to its original destination, or refused. Cache does not read this field.
	ByName bool
	// Resolver is the ip:port of the DNS server for such hosts, which the proxy's agent runs. If it is empty or
	// invalid, Envoy uses the DNS servers of the Pod.
	Resolver string
}

// protected lists the addresses to which an unknown host must not resolve. At these addresses are services that trust
// the proxy's network. An attacker who controls a DNS name or the host of a request must not reach them. IPv6 addresses
// that embed the IPv4 loopback or link-local addresses are listed too. Envoy's admin port and the application are at
// loopback addresses. The metadata services of clouds, which issue credentials, are at the remaining addresses. Envoy
// documents this filter
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

// mostHosts is the largest number of unknown hosts that an Envoy caches, as in istiod. Requests for further hosts get
// status 503 until a cached host has not been requested for five minutes (host_ttl).
const mostHosts = 1024

// Cache returns the DNS cache for unknown hosts. Its name is constant, so all listeners of an Envoy share the cache.
// Addresses at which services trust the proxy's network (loopback, link-local, metadata services of clouds) are
// filtered out. The cache holds at most 1024 hosts. families are the IP families of the proxy's addresses (Family). The
// result must not be modified, because results share the list of addresses.
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

// Resolver returns the extension configuration of Envoy's c-ares DNS resolver. The result contains a copy of settings.
func Resolver(settings *caresv3.CaresDnsResolverConfig) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: xds.Any(settings)}
}
