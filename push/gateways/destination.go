package gateways

import (
	"net/netip"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/scrape"
)

// metadataServers has the addresses of the metadata services of Google (IPv6), Alibaba, Azure and Oracle. The address
// 169.254.169.254 is not among them, because it is link-local.
var metadataServers = map[netip.Addr]bool{netip.MustParseAddr("fd20:ce::254"): true, netip.MustParseAddr("100.100.100.200"): true,
	netip.MustParseAddr("168.63.129.16"): true, netip.MustParseAddr("192.0.0.192"): true}

// nodeServices contains the IPv6 addresses of services that AWS provides at each Node, such as metadata (::254) and
// credentials of Pods (::23).
var nodeServices = netip.MustParsePrefix("fd00:ec2::/32")

// embedding has the prefixes of IPv6 addresses that end in an IPv4 address. A translator or the Node connects to that
// IPv4 address. They are the prefixes of NAT64 (RFC 6052), SIIT (RFC 2765), and "IPv4-compatible" addresses.
var embedding = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("::/96")}

// localUse is the prefix that NAT64 translators use within one network (RFC 8215). Its IPv6 addresses embed an IPv4
// address at one of the positions in localUsePositions (RFC 6052, section 2.2). sixToFour is the prefix of 6to4
// addresses (RFC 3056), which embed an IPv4 address in the bytes 2 to 5.
var (
	localUse          = netip.MustParsePrefix("64:ff9b:1::/48")
	localUsePositions = [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}}
	sixToFour         = netip.MustParsePrefix("2002::/16")
)

// localNames has names that resolvers, /etc/hosts of Pods or clouds resolve to addresses that Local rejects.
var localNames = map[string]bool{"localhost": true, "localhost.localdomain": true, "localhost4": true, "localhost6": true,
	"localhost4.localdomain4": true, "localhost6.localdomain6": true, "ip6-localhost": true, "ip6-loopback": true,
	"loopback": true, "host.docker.internal": true, "gateway.docker.internal": true,
	"metadata": true, "metadata.google.internal": true, "metadata.goog": true, "metadata.azure.internal": true,
	"instance-data": true, "instance-data.ec2.internal": true,
	"127-0-0-1.default.pod.cluster.local": true}

// podZone is the third label in the DNS names of Pods.
const podZone = "pod"

// thisNetwork has the addresses 0.0.0.0/8. Linux connects 0.0.0.0 to the Pod itself.
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// Local returns the reason why a gateway must not connect to an endpoint's address, for messages. The result is "" if
// no reason is known. Local rejects addresses that lead to the gateway's own Pod or Node, or to its cloud's metadata
// service. It also rejects multicast and broadcast addresses, and names that resolvers may read as an IP address. The
// argument is an IP address, a DNS name, a wildcard, or unix:// and a path. Names are not resolved.
func Local(address string) string {
	if strings.HasPrefix(address, unixPrefix) {
		return "a Unix socket belongs to the gateway's own Pod"
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return localName(address)
	}
	for _, addr := range meant(addr) {
		if why := localAddress(addr); why != "" {
			return why
		}
	}
	return ""
}

// localAddress is Local for an IP address. It ignores embedded addresses.
func localAddress(addr netip.Addr) string {
	switch {
	case addr.IsLoopback():
		return "a loopback address is the gateway's own Pod"
	case addr.IsUnspecified() || thisNetwork.Contains(addr):
		return "an unspecified address is the gateway's own Pod"
	case addr.IsLinkLocalUnicast():
		return "a link-local address belongs to the gateway's own Node or to its cloud's metadata service"
	case metadataServers[addr] || nodeServices.Contains(addr):
		return "this is the address of a cloud's metadata service"
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast address is no endpoint"
	}
	return ""
}

// meant returns the addresses to which connections to an IP address may lead. For most addresses this is the address
// itself, without zone and IPv4 mapping. For an address that may embed IPv4 addresses, the result has only the IPv4
// addresses. In an address of localUse the position of the IPv4 address is not known, so the result has one address for
// each possible position. Addresses of 0.0.0.0/8 are left out, because most of them are only the zeros beside the
// embedded address. If all are left out, the result is 0.0.0.0.
func meant(addr netip.Addr) []netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() || addr.IsLoopback() || addr.IsUnspecified() {
		return []netip.Addr{addr}
	}
	raw := addr.As16()
	if sixToFour.Contains(addr) {
		return []netip.Addr{netip.AddrFrom4([4]byte(raw[2:6]))}
	}
	for _, prefix := range embedding {
		if prefix.Contains(addr) {
			return []netip.Addr{netip.AddrFrom4([4]byte(raw[12:]))}
		}
	}
	if !localUse.Contains(addr) {
		return []netip.Addr{addr}
	}
	var all []netip.Addr
	for _, at := range localUsePositions {
		embedded := netip.AddrFrom4([4]byte{raw[at[0]], raw[at[1]], raw[at[2]], raw[at[3]]})
		if !thisNetwork.Contains(embedded) {
			all = append(all, embedded)
		}
	}
	if len(all) == 0 {
		return []netip.Addr{netip.IPv4Unspecified()}
	}
	return all
}

// Addresses returns the IP addresses to which connections to an endpoint's address may lead, without resolving names.
// The argument is an IP address or the DNS name of a Pod (10-1-0-1.NAMESPACE.pod.DOMAIN). The result is nil for other
// names. For an IPv6 address that may embed IPv4 addresses, such as one of NAT64, the result has only the IPv4
// addresses. For other IP addresses the result is the address itself, without zone and IPv4 mapping.
func Addresses(address string) []netip.Addr {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		addr, err = netip.ParseAddr(podName(CanonicalName(address)))
	}
	if err != nil {
		return nil
	}
	return meant(addr)
}

// CanonicalName returns a DNS name in lower case, without its trailing dots.
func CanonicalName(name string) string { return strings.TrimRight(strings.ToLower(name), ".") }

// Resolves reports whether a Pod that looks up a DNS name may get the addresses of a host of the mesh. Case and
// trailing dots do not matter. The name may be the host, or a name below it (a Pod of a headless Service). It may also
// be the first labels of the host, because the search domains of Pods add the other labels. An empty name does not
// resolve.
func Resolves(name, host string) bool {
	name, host = CanonicalName(name), CanonicalName(host)
	return name != "" && (name == host || strings.HasSuffix(name, "."+host) || strings.HasPrefix(host, name+"."))
}

// podName returns the IP address to which a cluster's DNS resolves a name 10-1-0-1.NAMESPACE.pod.DOMAIN. For other
// names it returns "". By default the DNS resolves such names for any address.
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

// coversLocal reports whether a wildcard covers a name that Local rejects.
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

// localName is Local for DNS names and wildcards. It rejects a name whose last label is a number, because resolvers
// read some of these names as IP addresses (127.1, 0x7f000001, 2130706433).
func localName(name string) string {
	name = CanonicalName(name)
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

// OwnPort states how the agent or the Envoy of a gateway uses a port of the Pod, for messages. The result is "" if
// neither binds the port by default, and for the HBONE port 15008.
func OwnPort(port uint32) string {
	if port == tunnelPort {
		return ""
	}
	return scrape.Own(uint16(min(port, 65535)))
}
