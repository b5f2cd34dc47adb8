package xds

import (
	"slices"
	"time"
)

// Listening holds the settings for a proxy's listeners that come from the proxy's node. Most proxies have the zero
// Listening. Listening is a comparable type.
type Listening struct {
	Families Families
	HTTP10   bool          // listeners also accept HTTP/1.0 (HTTP10 of the node's metadata)
	Idle     time.Duration // idle timeout of connections (IDLE_TIMEOUT of the node's metadata); 0: Envoy's default
}

// Families are the IP families of a proxy's own addresses.
type Families uint8

// The values of Families. IPv4Only is also the value for a proxy without a known address.
const (
	IPv4Only Families = iota
	IPv6Only
	BothFamilies
)

// byFamily maps each value of Families to addresses with the same meaning, such as the wildcard addresses. The names of
// listeners contain the first address of a list.
type byFamily map[Families][]string

// wildcards and loopbacks have the addresses of listeners. sources has the source addresses of the proxy's connections
// to its own workload.
var (
	wildcards = byFamily{IPv4Only: {"0.0.0.0"}, IPv6Only: {"::"}, BothFamilies: {"0.0.0.0", "::"}}
	loopbacks = byFamily{IPv4Only: {"127.0.0.1"}, IPv6Only: {"::1"}, BothFamilies: {"127.0.0.1", "::1"}}
	// Istio has the same addresses. Its rules that redirect connections to the proxy exclude connections from these
	// addresses.
	sources = byFamily{IPv4Only: {"127.0.0.6"}, IPv6Only: {"::6"}, BothFamilies: {"127.0.0.6", "::6"}}
)

// Wildcard returns the first address of a listener that listens on all addresses: 0.0.0.0, or :: for IPv6Only.
func (f Families) Wildcard() string { return wildcards[f][0] }

// Loopback returns the first address of a listener that only the proxy's own workload can reach: 127.0.0.1, or ::1 for
// IPv6Only.
func (f Families) Loopback() string { return loopbacks[f][0] }

// Also returns the further addresses of a listener whose first address is the result of Wildcard or Loopback. For
// BothFamilies the result is the IPv6 address with the same meaning. For other values of Families and for other
// addresses the result is empty.
func (f Families) Also(address string) []string {
	for _, all := range []byFamily{wildcards, loopbacks} {
		if all[f][0] == address {
			return slices.Clone(all[f][1:])
		}
	}
	return nil
}

// Sources returns the source addresses of the proxy's connections to its own workload, one per family. The caller owns
// the slice.
func (f Families) Sources() []string { return slices.Clone(sources[f]) }
