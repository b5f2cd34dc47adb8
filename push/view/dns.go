package view

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"

	meshv1 "istio.io/api/mesh/v1alpha1"
)

// Family is a family of IP addresses.
type Family uint8

// The families of IP addresses. NoFamily is the zero value, and means that no family applies.
const (
	NoFamily Family = iota
	IPv4
	IPv6
)

// Has reports whether an IP address in text form belongs to the family. It is false for a malformed address, and for
// NoFamily.
func (f Family) Has(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && (f == IPv4 && a.Is4() || f == IPv6 && a.Is6())
}

// automaticOf returns Scope.Automatic for a node: the family of the automatic addresses to which the node's agent
// resolves hosts of ServiceEntries. It returns NoFamily if the agent does not resolve names. As in istiod, the result
// is IPv6 only if all addresses of the node are IPv6 (pilot/pkg/model/service.go, nodeUsesAutoallocatedIPs and
// GetAddressForProxy).
func automaticOf(n Node) Family {
	stated := n.Metadata["DNS_CAPTURE"]
	if stated == "" || n.Kind != Sidecar {
		return NoFamily
	}
	if captures, err := strconv.ParseBool(stated); err != nil || !captures {
		return NoFamily
	}
	if len(n.Addresses) > 0 && !slices.ContainsFunc(n.Addresses, IPv4.Has) {
		return IPv6
	}
	return IPv4
}

// agentDNS is the port on which agents of Istio and of Navarch serve DNS.
const agentDNS = "15053"

// resolverOf returns Scope.Resolver: the address of the agent's DNS server, from DNS_PROXY_ADDR in the node's metadata.
// The parameter family is the family of the addresses to which the agent resolves names. The result is "" for the
// default address, for NoFamily, and for a value that has no port, or whose host is neither localhost nor an IP
// address. It is also "" in a mesh without ALLOW_ANY_DYNAMIC_DNS, because the proxies do not use the address there.
func resolverOf(mesh *meshv1.MeshConfig, n Node, family Family) string {
	const dynamic = meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS
	stated := n.Metadata["DNS_PROXY_ADDR"]
	if stated == "" || family == NoFamily || mesh.GetOutboundTrafficPolicy().GetMode() != dynamic {
		return ""
	}
	host, port, err := net.SplitHostPort(stated)
	if err != nil {
		return ""
	}
	if host == "localhost" {
		host = loopbacks[family]
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil || at.Port() == 0 || at.String() == net.JoinHostPort(loopbacks[family], agentDNS) {
		return ""
	}
	return at.String()
}

var loopbacks = [...]string{NoFamily: "", IPv4: "127.0.0.1", IPv6: "::1"}

// NameServer returns the address of the agent's DNS server as "ip:port", or "" if the agent does not resolve names for
// its Pod. The address is Resolver, or else port 15053 at the loopback address of the family in Automatic. An IPv6
// address is in brackets.
func (s Scope) NameServer() string {
	if s.Automatic == NoFamily {
		return ""
	}
	return cmp.Or(s.Resolver, net.JoinHostPort(loopbacks[s.Automatic], agentDNS))
}
