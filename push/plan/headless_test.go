package plan

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/xds"
)

// A headless service has a listener for each endpoint, except for the proxy that has the address.
func TestHeadless(t *testing.T) {
	s := snapshot(svc(t, "shop/db", "None", "tcp:5432:TCP"), eps(t, "shop/db-1", "{name: tcp, number: 5432}", "10.1.0.1", "10.1.0.2", "10.1.0.3 v1 !"))
	own := node("shop", "db-0", "app=db")
	own.Addresses = []string{"10.1.0.2"}
	p := New(Settings{Snapshot: s})
	other, self := p.Join(node("shop", "a")), p.Join(own)
	if got := names(other.Set(), xds.Listener); got != "10.1.0.1_5432 10.1.0.2_5432 virtualInbound virtualOutbound" {
		t.Errorf("listeners: %s", got)
	}
	if got := names(self.Set(), xds.Listener); got != "10.1.0.1_5432 virtualInbound virtualOutbound" {
		t.Errorf("listeners of the pod itself: %s", got)
	}
	if other.View().Scope != self.View().Scope || p.Stats().Overlays != 1 {
		t.Errorf("the scope split: %+v", p.Stats())
	}
}

// A headless service with many endpoints has one listener for all of them: each of its own would cost every proxy memory. Connections to other addresses at
// its port are of no service.
func TestHeadlessWithManyEndpoints(t *testing.T) {
	for endpoints, want := range map[int]int{64: 64, 65: 1} {
		var addresses []string
		for i := range endpoints {
			addresses = append(addresses, fmt.Sprintf("10.1.0.%d", i+1))
		}
		set := planFor(snapshot(svc(t, "shop/db", "None", "tcp:5432:TCP"), eps(t, "shop/db-1", "{name: tcp, number: 5432}", addresses...)), node("shop", "a"))
		var own []string
		for _, name := range strings.Fields(names(set, xds.Listener)) {
			if strings.HasSuffix(name, "_5432") {
				own = append(own, name)
			}
		}
		if len(own) != want {
			t.Errorf("%d endpoints: %d listeners, want %d: %v", endpoints, len(own), want, own)
			continue
		}
		if want > 1 {
			continue
		}
		l := listenerOf(t, set, "0.0.0.0_5432")
		if chains := l.GetFilterChains(); len(chains) != 1 || len(chains[0].GetFilterChainMatch().GetPrefixRanges()) != endpoints || l.GetDefaultFilterChain() == nil {
			t.Errorf("%d endpoints: the listener is %v", endpoints, l)
		}
	}
}

// overlays counts the views that have an overlay.
func overlays(p *Planner) (n int) {
	for _, pl := range p.views {
		n += min(pl.overlay.Len(), 1)
	}
	return n
}
