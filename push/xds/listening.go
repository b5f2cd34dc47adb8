package xds

import (
	"slices"
	"time"
)

// Listening is what a proxy's node says of how it takes connections. Comparable; the zero Listening is that of most proxies.
type Listening struct {
	Families Families
	HTTP10   bool          // HTTP/1.0 is taken too (HTTP10 of the node's metadata)
	Idle     time.Duration // connections that nobody uses end after it (IDLE_TIMEOUT of the node's metadata); 0: as Envoy has it
}

// Families says of which families a proxy's own addresses are.
type Families uint8

// The Families; IPv4Only also where no address is known.
const (
	IPv4Only Families = iota
	IPv6Only
	BothFamilies
)

// byFamily are addresses with one meaning, by Families: the one that names a listener, then others.
type byFamily map[Families][]string

var (
	wildcards = byFamily{IPv4Only: {"0.0.0.0"}, IPv6Only: {"::"}, BothFamilies: {"0.0.0.0", "::"}}
	loopbacks = byFamily{IPv4Only: {"127.0.0.1"}, IPv6Only: {"::1"}, BothFamilies: {"127.0.0.1", "::1"}}
	// Redirection lets connections from these to the proxy's own workload pass: they are not captured again (Istio's).
	sources = byFamily{IPv4Only: {"127.0.0.6"}, IPv6Only: {"::6"}, BothFamilies: {"127.0.0.6", "::6"}}
)

// Wildcard is the address of a listener that is for all of the proxy's addresses.
func (f Families) Wildcard() string { return wildcards[f][0] }

// Loopback is the address of a listener that is for the proxy's own workload alone.
func (f Families) Loopback() string { return loopbacks[f][0] }

// Also are the addresses at which a listener is too that has this one: those of the other family with the same meaning.
func (f Families) Also(address string) []string {
	for _, all := range []byFamily{wildcards, loopbacks} {
		if all[f][0] == address {
			return slices.Clone(all[f][1:])
		}
	}
	return nil
}

// Sources are the addresses that connections to the proxy's own workload come from.
func (f Families) Sources() []string { return slices.Clone(sources[f]) }
