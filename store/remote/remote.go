// Package remote says which host a connection comes from, for what is bounded by hosts (leaf).
//
// Owns: nothing.  Reads: addresses of peers.  Never: believes what a client says.
package remote

import (
	"net"
	"net/netip"
)

// Host is the host of an address. What has no IP address is one host, the zero Prefix.
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
