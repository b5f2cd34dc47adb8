package gateways

import (
	"net/netip"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/scrape"
)

// metadataServers has the addresses of clouds' metadata services besides 169.254.169.254: of Google (IPv6), Alibaba,
// Azure and Oracle.
var metadataServers = map[netip.Addr]bool{netip.MustParseAddr("fd20:ce::254"): true, netip.MustParseAddr("100.100.100.200"): true,
	netip.MustParseAddr("168.63.129.16"): true, netip.MustParseAddr("192.0.0.192"): true}

// nodeServices contains the IPv6 addresses of services that AWS provides at each Node, such as metadata (::254) and
// credentials of Pods (::23).
var nodeServices = netip.MustParsePrefix("fd00:ec2::/32")

// embedding has the prefixes of IPv6 addresses that end in an IPv4 address, to which a translator or the Node connects:
// NAT64 (RFC 6052), SIIT (RFC 2765), and "IPv4-compatible" addresses.
var embedding = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("::/96")}

// localNames has names that resolvers, /etc/hosts of Pods or clouds resolve to addresses for which Local has a reason.
var localNames = map[string]bool{"localhost": true, "localhost.localdomain": true, "localhost4": true, "localhost6": true,
	"localhost4.localdomain4": true, "localhost6.localdomain6": true, "ip6-localhost": true, "ip6-loopback": true,
	"metadata.google.internal": true, "metadata.goog": true, "instance-data": true, "instance-data.ec2.internal": true,
	"127-0-0-1.default.pod.cluster.local": true}

// podZone is the third label in the DNS names of Pods.
const podZone = "pod"

// thisNetwork has the addresses 0.0.0.0/8. Linux connects 0.0.0.0 to the Pod itself.
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// Local returns the reason why an endpoint's address may lead to the gateway's own Pod or Node, for messages. The
// address is an IP address, a DNS name, a wildcard, or unix:// and a path. It returns "" if no such reason is known.
// Names are not resolved.
func Local(address string) string {
	if strings.HasPrefix(address, unixPrefix) {
		return "a Unix socket is of the gateway's own Pod"
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return localName(address)
	}
	switch addr = embedded(addr.Unmap().WithZone("")); {
	case addr.IsLoopback():
		return "a loopback address is the gateway's own Pod"
	case addr.IsUnspecified() || thisNetwork.Contains(addr):
		return "an unspecified address is the gateway's own Pod"
	case addr.IsLinkLocalUnicast():
		return "a link-local address is of the gateway's own Node, or of its cloud's metadata service"
	case metadataServers[addr] || nodeServices.Contains(addr):
		return "this is the address of a cloud's metadata service"
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast address is no endpoint"
	}
	return ""
}

// embedded returns the IPv4 address in an IPv6 address of embedding; any other address is returned unchanged.
func embedded(addr netip.Addr) netip.Addr {
	for _, prefix := range embedding {
		if prefix.Contains(addr) && !addr.IsLoopback() && !addr.IsUnspecified() {
			bytes := addr.As16()
			return netip.AddrFrom4([4]byte(bytes[12:]))
		}
	}
	return addr
}

// podName returns the address to which a cluster's DNS resolves a name 10-1-0-1.NAMESPACE.pod.DOMAIN; empty for other
// names. By default the DNS does so for any address.
func podName(name string) string {
	labels := strings.SplitN(name, ".", 4)
	if len(labels) < 3 || labels[2] != podZone {
		return ""
	}
	for _, separator := range []string{".", ":"} {
		if addr, err := netip.ParseAddr(strings.ReplaceAll(labels[0], "-", separator)); err == nil {
			return addr.String()
		}
	}
	return ""
}

// coversLocal reports whether a wildcard covers a name for which Local has a reason.
func coversLocal(wildcard string) bool {
	if !strings.HasPrefix(wildcard, "*") {
		return false
	}
	for name := range localNames {
		if model.Covers(wildcard, name) {
			return true
		}
	}
	labels := strings.SplitN(wildcard, ".", 4)
	return len(labels) > 1 && labels[1] == podZone || len(labels) > 2 && labels[2] == podZone
}

// localName is Local for DNS names. A name whose last label is a number gets a reason, because resolvers read some such
// names as IP addresses (127.1, 0x7f000001, 2130706433).
func localName(name string) string {
	name = strings.TrimRight(strings.ToLower(name), ".")
	if coversLocal(name) {
		return "names below it resolve to the gateway's own Pod, or to its cloud's metadata service"
	}
	name = strings.TrimPrefix(name, "*.")
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case localNames[name], last == "localhost":
		return "the name resolves to the gateway's own Pod, or to its cloud's metadata service"
	case podName(name) != "":
		return Local(podName(name))
	case last != "" && (strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")):
		return "resolvers may read the name as an IP address in another form"
	}
	return ""
}

// OwnPort returns the use of a Pod's port by the agent or the Envoy of a gateway; empty if neither binds the port.
func OwnPort(port uint32) string {
	if port == tunnelPort {
		return ""
	}
	return scrape.Own(uint16(min(port, 65535)))
}
