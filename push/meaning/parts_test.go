package meaning

import (
	"context"
	"fmt"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Chains that are equal, in both versions of a listener or in several listeners, are modelled once. A chain that
// differs has a model of its own, and the facts are the same.
func TestEqualChainsAreModelledOnce(t *testing.T) {
	listener := func(clusters ...string) *listenerv3.Listener {
		l := &listenerv3.Listener{Name: "0.0.0.0_443", Address: pipe(0)}
		for i, to := range clusters {
			l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
				FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: []string{fmt.Sprint(i)}},
				Filters:          []*listenerv3.Filter{{Name: "tcp", ConfigType: tcpTo(to)}}})
		}
		return l
	}
	m := newMemo(context.Background())
	for _, c := range []struct {
		old, now *listenerv3.Listener
		modelled int // so far
		facts    int
	}{
		{listener("a", "b", "c"), listener("a", "b", "other"), 4, 1},
		{listener("a", "b", "third"), listener("a", "b", "c"), 5, 1},
		{listener("a", "b"), listener("a", "other"), 6, 1},
	} {
		facts := listenerFacts(Pair{Name: "0.0.0.0_443", Old: c.old, New: c.now}, m)
		if len(facts) != c.facts || m.modelled != c.modelled {
			t.Errorf("%d facts and %d models, want %d and %d: %v", len(facts), m.modelled, c.facts, c.modelled, facts)
		}
	}
	m.chained = partsRoom
	m.chainOf(listener("new").GetFilterChains()[0])
	if len(m.chains) != 1 {
		t.Errorf("%d chains are stored beyond the room", len(m.chains))
	}
}
