package plan

import (
	"fmt"
	"strings"
	"testing"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// A workload whose policies and patches are too large at all of its ports refuses its traffic, and a problem names the
// largest object and the ports. With fewer ports, or a smaller policy, the policy applies.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestPoliciesTooLargeForPorts(t *testing.T) {
	patches := manyPatches(t, 1000, "applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}",
		`operation: INSERT_FIRST, value: {name: f%d, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}`)
	tokens := attacks["tokens of inbound ports"](t, 100)[1]
	few := security(t, model.KindAuthorizationPolicy, "ns0/few", "action: DENY\nrules: [{from: [{source: {principals: [few]}}]}]",
		&securityv1.AuthorizationPolicy{})
	for what, c := range map[string]struct {
		ports  int
		of     []model.Record
		closed bool
	}{
		"a policy":            {300, []model.Record{manyPrincipals(t, 1000), few}, true},
		"at few ports":        {10, []model.Record{manyPrincipals(t, 1000), few}, false},
		"a small one":         {300, []model.Record{few}, false},
		"tokens":              {300, []model.Record{tokens, few}, true},
		"patches":             {300, []model.Record{patches, few}, true},
		"patches at one port": {1, []model.Record{patches, few}, false},
	} {
		p := New(Settings{Pool: &pool.Pool{}, Snapshot: snapshot(append(c.of, portsOfWorkload(t, c.ports))...)})
		h := p.Join(node("ns0", "a", "app=attack"))
		r := h.Set().Types[xds.Listener].Get(xds.VirtualInbound)
		if r == nil {
			t.Fatalf("%s: no listener", what)
		}
		closed := !strings.Contains(string(r.Body()), "few")
		if closed != c.closed || closed && (r.Size() > 4<<20 || !strings.Contains(string(r.Body()), xds.BlackHole)) {
			t.Errorf("%s: closed %v, a listener of %d bytes", what, closed, r.Size())
		}
		said := ""
		for _, one := range p.Problems() {
			if strings.Contains(one.Message, "refuse all connections") {
				said = one.Key.Name + fmt.Sprint(strings.Contains(one.Message, fmt.Sprintf(" %d ports", c.ports+1)))
			}
		}
		if want := map[bool]string{true: "attacktrue"}[c.closed]; said != want {
			t.Errorf("%s: problem of %q, want %q", what, said, want)
		}
	}
}

// The ports of a gRPC server count as well, although no connections are redirected.
func TestPoliciesTooLargeForServers(t *testing.T) {
	for ports, want := range map[int]bool{10: false, 300: true} {
		p := New(Settings{Pool: &pool.Pool{}, Snapshot: snapshot(manyPrincipals(t, 1000), portsOfWorkload(t, ports))})
		p.Join(app("ns0", "a", "app=attack"))
		if got := strings.Contains(problemTexts(p), fmt.Sprintf("with %d ports refuse all connections", ports)); got != want {
			t.Errorf("%d ports: closed %v, want %v", ports, got, want)
		}
	}
}
