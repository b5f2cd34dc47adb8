// Package remote returns the host of a connection's peer, for limits for each host (leaf).
//
// Owns: nothing.
// Reads: addresses of peers.
// Never: trusts data of a client.
package remote

import (
	"net"
	"net/netip"
)

// Host returns the network of an address's host: the IPv4 address, or the /64 of the IPv6 address. All addresses
// without an IP share the zero Prefix.
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
