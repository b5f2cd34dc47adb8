//go:build !race

package plan

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// trafficMesh returns a random mesh with what decides on requests.
func trafficMesh(t testing.TB, seed uint64, d *traffic) *mirror.Snapshot {
	m := newMesh(t, firstEntrances+seed)
	for range 40 {
		m.edit()
		if m.one(3) {
			m.entrance()
		}
	}
	own := map[model.Key]bool{}
	for _, r := range d.records() {
		m.records[r.Meta().Key], own[r.Meta().Key] = r, true
	}
	var all []model.Record
	for key, r := range m.records {
		if key.Kind == model.KindAuthorizationPolicy && !own[key] && seed%4 > 0 {
			continue // most of them refuse nearly everything, so that no other policy would be seen
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b model.Record) int { return strings.Compare(a.Meta().Key.String(), b.Meta().Key.String()) })
	return snapshot(all...)
}

// answeredAs reports whether Envoy has answered with a status, or with one of gRPC in its place.
func answeredAs(status int, grpc *codes.Code, got observed) bool {
	if grpc == nil {
		return got.status == status && got.grpc == ""
	}
	return got.status == http.StatusOK && got.grpc == strconv.Itoa(int(*grpc))
}

// agrees reports whether Envoy has answered as a walk of a request says.
func agrees(r walk.Request, want walk.Result, got observed) bool {
	var unavailable *codes.Code
	if walk.IsGRPC(r.Headers) {
		code := walk.GRPCStatus(http.StatusServiceUnavailable)
		unavailable = &code
	}
	switch want.Outcome {
	case walk.Unserved, walk.Closed:
		return got.ended
	case walk.Answered:
		return !got.ended && got.cluster == "" && answeredAs(want.Status, want.GRPC, got)
	case walk.Waiting:
		return false
	case walk.Forwarded:
	}
	for _, to := range want.To {
		switch missing := to.Reach == walk.Missing || to.Reach == walk.Empty; {
		case missing && want.TCP && got.ended,
			missing && !want.TCP && got.cluster == "" && answeredAs(http.StatusServiceUnavailable, unavailable, got),
			!missing && got.cluster == to.Cluster && got.status == 200:
			return true
		}
	}
	return false
}

// tally counts the outcomes of walks, by what an operator asks for.
func tally(counts map[string]int, r walk.Result) {
	for _, step := range r.Steps {
		switch {
		case strings.HasPrefix(step.Text, "denied"):
			counts["RBAC 403"]++
		case strings.HasPrefix(step.Text, "401:"):
			counts["JWT 401"]++
		}
	}
	switch {
	case r.Outcome == walk.Answered && (r.Status == 404 || r.Status == 421):
		counts[fmt.Sprint(r.Status)]++
	case r.Outcome == walk.Answered && r.Status >= 300 && r.Status < 400:
		counts["redirect"]++
	case r.Outcome == walk.Closed:
		counts["closed"]++
	}
	for _, to := range r.To {
		switch to.Reach {
		case walk.Missing:
			counts["no cluster"]++
		case walk.Empty:
			counts["no endpoint"]++
		case walk.Addressed, walk.Original, walk.Resolved:
			counts["forwarded"]++
		}
	}
	if len(r.Mirrors) > 0 {
		counts["mirror"]++
	}
}

// walked counts the walks of a test, and what they say.
type walked struct {
	counts        map[string]int
	walks, misses int
}

// protocols counts the protocols of requests, and the answers of gRPC.
func (c *walked) protocols(r walk.Request, want walk.Result) {
	if r.Scheme == "h2" || r.Scheme == "h2c" {
		c.counts["HTTP/2"]++
	}
	if want.GRPC != nil {
		c.counts["gRPC"]++
	}
	if r.Address == ownBind {
		c.counts["captureMode NONE"]++
	}
}

// compare draws requests to one proxy, and compares their walks with what its Envoy does.
func (c *walked) compare(t *testing.T, envoy *staged, held walk.Held, direction walk.Direction, requests []walk.Request) {
	for _, r := range requests {
		c.walks++
		want, got := walk.Walk(held, direction, r), envoy.ask(direction, r, number(c.walks))
		tally(c.counts, want)
		c.protocols(r, want)
		if !agrees(r, want, got) {
			c.misses++
			t.Logf("%+v\n  Envoy: %v\n  walk: %s\n  %v", r, got, want.Summary(), want.Steps)
		}
		for _, to := range want.Mirrors {
			if to.Reach == walk.Addressed && got.cluster != "" && !envoy.arrived.wait(number(c.walks), to.Cluster) {
				t.Errorf("%+v: no copy arrives by %s", r, to.Cluster)
			}
		}
	}
}

// TestWalksMatchEnvoy: a walk says what a real Envoy does with random requests in random meshes, at sidecars of clients
// and of servers and at gateways. Beside each request that is forwarded its copies arrive, too.
// Promise: why.md#proof
func TestWalksMatchEnvoy(t *testing.T) {
	meshes, each := 2, 50
	if *histories > 6 {
		meshes, each = *histories*17/4, 34
	}
	const allowed = 1000 // one of so many walks may differ
	mesh, public := newAuthority(t), newAuthority(t)
	c := &walked{counts: map[string]int{}}
	for seed := range uint64(meshes) {
		d := newTraffic(t, seed)
		s := trafficMesh(t, seed, d)
		server, client, gateway := node("a", "s0-1", "app=s0", "version=v1"), node("a", "web", "app=web"), routerOf("a", "gw")
		server.Addresses, gateway.Addresses = []string{"10.1.0.1"}, []string{"10.1.0.5"}
		for _, of := range []struct {
			name      string
			node      view.Node
			direction walk.Direction
			draw      func() walk.Request
		}{
			{"client", client, walk.Outbound, d.outbound}, {"server", server, walk.Inbound, d.inbound},
			{"gateway", gateway, walk.Inbound, d.entering},
		} {
			var requests []walk.Request
			for range each {
				requests = append(requests, of.draw())
			}
			of.node.Caps |= xds.CapIdentity
			set := planFor(s, of.node)
			t.Run(fmt.Sprintf("%d %s", seed, of.name), func(t *testing.T) { // Envoy ends with it
				c.compare(t, runStaged(t, set, mesh, public), walkable(t, set), of.direction, requests)
			})
			c.counts[of.name] += each
		}
	}
	t.Logf("%d walks, %d differ from Envoy: %v", c.walks, c.misses, c.counts)
	if c.misses > c.walks/allowed {
		t.Errorf("%d of %d walks differ from Envoy", c.misses, c.walks)
	}
	for _, outcome := range []string{"404", "421", "redirect", "RBAC 403", "JWT 401", "no cluster", "no endpoint",
		"mirror", "gateway", "forwarded", "closed", "HTTP/2", "gRPC", "captureMode NONE"} {
		if c.counts[outcome] < c.walks/100 && *histories > 6 {
			t.Errorf("%s: %d times of %d", outcome, c.counts[outcome], c.walks)
		}
	}
}
