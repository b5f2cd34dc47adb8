// Package remote determines the host of a connection's peer, so that limits can apply to each host.
//
// Owns: nothing.
// Reads: addresses of peers.
// Never: trusts data of a client.
package remote

import (
	"net"
	"net/netip"
)

// Host returns the prefix that stands for the host of an address: the IPv4 address as /32, or the /64 of the IPv6
// address. An IPv4 address in the form of IPv6 counts as IPv4. For addresses without an IP and a port (Unix sockets),
// the result is the zero Prefix. The parameter a must not be nil.
func Host(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := at.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	host, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return host
}
