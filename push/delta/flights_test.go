package delta

import (
	"fmt"
	"slices"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// For a state-of-the-world client that answers no response, each cluster in flight is stored once, whatever the number
// of responses. The client's later answer applies to all of them.
func TestUnansweredClustersAreKeptOnce(t *testing.T) {
	const clusters = 1000
	var all []*xds.Resource
	for i := range clusters {
		all = append(all, thing(xds.Cluster, fmt.Sprintf("c%d@1", i)))
	}
	goal := manifest.Of(all...)
	set := func() *manifest.Set {
		return &manifest.Set{Types: [xds.NumTypes]manifest.Stack{xds.Cluster: {goal}, xds.Endpoint: {manifest.Of(thing(xds.Endpoint, "e@1"))}}}
	}
	s, nonces := New(Config{SotW: true}, set()), []string(nil)
	s.Request(Request{Type: xds.Cluster}, nil)
	kept := func() (n int) {
		for _, f := range s.types[xds.Cluster].flights {
			n += len(f.set)
		}
		return n
	}
	for i := range maxFlights {
		for _, names := range [][]string{{}, {"e"}} { // it requests again, and reads all responses before it answers
			s.Request(Request{Type: xds.Endpoint, Subscribe: slices.Values(names)}, nil)
		}
		for r, ok := s.Next(); ok; r, ok = s.Next() {
			if r.Type == xds.Cluster {
				nonces = append(nonces, r.Nonce)
			} else {
				s.Request(Request{Type: r.Type, Nonce: r.Nonce, Version: r.Version, Subscribe: slices.Values([]string{"e"})}, nil)
			}
		}
		goal = goal.With([]*xds.Resource{thing(xds.Cluster, fmt.Sprintf("n%d@1", i))}, nil)
		s.Target(set())
	}
	if n := len(nonces); n != maxFlights || kept() > clusters+maxFlights {
		t.Errorf("%d responses were sent; %d resources are kept of them", n, kept())
	}
	s.Request(Request{Type: xds.Cluster, Nonce: nonces[1]}, nil)
	if n := s.InFlight(xds.Cluster); n != maxFlights-2 || kept() > clusters+maxFlights {
		t.Errorf("%d responses are in flight after the second is answered; %d resources are kept of them", n, kept())
	}
	s.Request(Request{Type: xds.Cluster, Nonce: nonces[maxFlights-1]}, nil)
	for _, name := range []string{"c0", "n0", fmt.Sprintf("n%d", maxFlights-2)} {
		if s.Acknowledged(xds.Cluster, name) == "" {
			t.Errorf("%s is not acknowledged", name)
		}
	}
}
