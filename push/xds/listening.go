package xds

import (
	"slices"
	"time"
)

// Listening holds the settings of listeners in a proxy's node. It is comparable. The zero Listening is that of most
// proxies.
type Listening struct {
	Families Families
	HTTP10   bool          // accept HTTP/1.0 too (HTTP10 of the node's metadata)
	Idle     time.Duration // idle timeout of connections (IDLE_TIMEOUT of the node's metadata); 0: Envoy's default
}

// Families are the IP families of a proxy's own addresses.
type Families uint8

// The Families. IPv4Only is also the value for a proxy without a known address.
const (
	IPv4Only Families = iota
	IPv6Only
	BothFamilies
)

// byFamily holds addresses with one meaning, by Families. The first address of a list is in the names of listeners.
type byFamily map[Families][]string

// The addresses of listeners, and the source addresses of connections to the proxy's own workload.
var (
	wildcards = byFamily{IPv4Only: {"0.0.0.0"}, IPv6Only: {"::"}, BothFamilies: {"0.0.0.0", "::"}}
	loopbacks = byFamily{IPv4Only: {"127.0.0.1"}, IPv6Only: {"::1"}, BothFamilies: {"127.0.0.1", "::1"}}
	// The rules of redirection exclude connections from these addresses (Istio's).
	sources = byFamily{IPv4Only: {"127.0.0.6"}, IPv6Only: {"::6"}, BothFamilies: {"127.0.0.6", "::6"}}
)

// Wildcard returns the address of a listener for all of the proxy's addresses: 0.0.0.0, or :: for IPv6Only.
func (f Families) Wildcard() string { return wildcards[f][0] }

// Loopback returns the address of a listener for the proxy's own workload alone: 127.0.0.1, or ::1 for IPv6Only.
func (f Families) Loopback() string { return loopbacks[f][0] }

// Also returns the addresses that a listener at an address listens on too. For BothFamilies that is the IPv6 address of
// the same meaning. It returns nil for addresses except Wildcard and Loopback.
func (f Families) Also(address string) []string {
	for _, all := range []byFamily{wildcards, loopbacks} {
		if all[f][0] == address {
			return slices.Clone(all[f][1:])
		}
	}
	return nil
}

// Sources returns the source addresses of the proxy's connections to its own workload, one per family.
func (f Families) Sources() []string { return slices.Clone(sources[f]) }
