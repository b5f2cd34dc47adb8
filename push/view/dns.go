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

// The families; NoFamily where there is none.
const (
	NoFamily Family = iota
	IPv4
	IPv6
)

// Has says whether an IP, as text, is of the family.
func (f Family) Has(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && (f == IPv4 && a.Is4() || f == IPv6 && a.Is6())
}

// automaticOf is Scope.Automatic of a node: as istiod has it, IPv4 unless it has IPv6 addresses alone (pilot/pkg/model/service.go,
// nodeUsesAutoallocatedIPs and GetAddressForProxy).
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

// agentDNS is the port at which agents answer DNS (of Istio's and ours).
const agentDNS = "15053"

// resolverOf is Scope.Resolver of a node with an agent that answers its Pod's questions in some family. What is no IP with a port says nothing, and nothing does where the mesh has no
// proxy resolve names: proxies would be planned apart for what is in none of their configuration.
func resolverOf(mesh *meshv1.MeshConfig, n Node, answers Family) string {
	stated := n.Metadata["DNS_PROXY_ADDR"]
	if stated == "" || answers == NoFamily || mesh.GetOutboundTrafficPolicy().GetMode() != meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		return ""
	}
	host, port, err := net.SplitHostPort(stated)
	if err != nil {
		return ""
	}
	if host == "localhost" {
		host = loopbacks[answers]
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil || at.Port() == 0 || at.String() == net.JoinHostPort(loopbacks[answers], agentDNS) {
		return ""
	}
	return at.String()
}

var loopbacks = [...]string{NoFamily: "", IPv4: "127.0.0.1", IPv6: "::1"}

// NameServer is where the agent answers questions of the Pod for names, ip:port; empty: it does not. It listens on loopback, of proxies with IPv6
// addresses alone at the address of that family (istio: https://github.com/istio/istio/pull/61344).
func (s Scope) NameServer() string {
	if s.Automatic == NoFamily {
		return ""
	}
	return cmp.Or(s.Resolver, net.JoinHostPort(loopbacks[s.Automatic], agentDNS))
}
