package plan

import (
	"strings"
	"testing"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The endpoints of a proxy's own workload are explained as such. If no service selects the proxy, the assignment exists
// but is empty, because Envoy waits for it.
func TestOwnWorkloadIsExplained(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"),
		rec(t, model.KindEndpoints, "shop/web", "{hosts: ["+web+"], ports: [{name: http, number: 8080}], endpoints: [{address: 10.1.0.7, workload: web, locality: r1/z1}, {address: 10.1.0.8, workload: other, locality: r1/z1}]}"))
	p := New(Settings{Snapshot: s})
	n := node("shop", "web-1", "app=web")
	n.Workload, n.Locality, n.Caps = "web", "r1/z1", n.Caps|xds.CapSelfDiscovery
	own, none := p.Join(n), n
	none.Namespace = "elsewhere"
	nobody := p.Join(none)
	members := func(h *Handle) (addresses []string) {
		for _, spec := range p.Explain(h, xds.Endpoint, xds.LocalCluster) {
			for _, m := range spec.(endpoint.Spec).Members.All() {
				addresses = append(addresses, m.Endpoint.GetAddress())
			}
		}
		return addresses
	}
	if got := strings.Join(members(own), " "); got != "10.1.0.7" {
		t.Errorf("its own workload: %q", got)
	}
	if got := members(nobody); len(got) != 0 || nobody.Set().Types[xds.Endpoint].Get(xds.LocalCluster) == nil {
		t.Errorf("of no service: %v", got)
	}
}
