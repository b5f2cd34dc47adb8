package plan

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A headless service has a listener for each endpoint, ready or not, except for the proxy with that address.
func TestHeadless(t *testing.T) {
	s := snapshot(svc(t, "shop/db", "None", "tcp:5432:TCP"), eps(t, "shop/db-1", "{name: tcp, number: 5432}", "10.1.0.1", "10.1.0.2", "10.1.0.3 v1 !"))
	own := node("shop", "db-0", "app=db")
	own.Addresses = []string{"10.1.0.2"}
	p := New(Settings{Snapshot: s})
	other, self := p.Join(node("shop", "a")), p.Join(own)
	if got := names(other.Set(), xds.Listener); got != "10.1.0.1_5432 10.1.0.2_5432 10.1.0.3_5432 virtualInbound virtualOutbound" {
		t.Errorf("listeners: %s", got)
	}
	if got := names(self.Set(), xds.Listener); got != "10.1.0.1_5432 10.1.0.3_5432 virtualInbound virtualOutbound" {
		t.Errorf("listeners of the pod itself: %s", got)
	}
	if other.View().Scope != self.View().Scope || p.Stats().Overlays != 1 {
		t.Errorf("the scope split: %+v", p.Stats())
	}
}

// headlessMesh returns a headless service with these endpoints, and a function that changes the addresses of its slice.
func headlessMesh(t *testing.T, addresses []string) (first *mirror.Snapshot, edit func(addresses []string) mirror.Change) {
	t.Helper()
	const ports = "{name: tcp, number: 5432}, {name: any, number: 5433}"
	s := snapshot(svc(t, "shop/db", "None", "tcp:5432:TCP", "any:5433:AUTO", "http:8080:HTTP"), eps(t, "shop/db-1", ports, addresses...))
	return s, func(addresses []string) mirror.Change {
		c := s.Apply(s.Revision()+1, []model.Record{eps(t, "shop/db-1", ports, addresses...)}, nil)
		s = c.New
		return c
	}
}

func addressesTo(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1))
	}
	return all
}

// A change of an endpoint's readiness changes no listener of a headless service. If no agent requests names, it is
// planned by the fast path alone.
func TestReadinessOfHeadless(t *testing.T) {
	addresses := addressesTo(3)
	s, edit := headlessMesh(t, addresses)
	p := New(Settings{Snapshot: s})
	h := p.Join(node("shop", "a"))
	before := h.Set()
	moved, rest := p.PlanEndpoints(edit([]string{addresses[0], addresses[1] + " v1 !", addresses[2]}), false)
	if len(moved) != 0 || len(rest) != 0 || h.Set() != before {
		t.Errorf("an endpoint that became unready moved %d proxies, and %d edits come again", len(moved), len(rest))
	}
	p.AskNames(h)
	if _, rest := p.PlanEndpoints(edit(addresses), false); len(rest) != 1 {
		t.Error("a proxy asks for names, and the edit does not come again for these")
	}
}

// A client uses mTLS to a headless service if all its endpoints support it, ready or not. When the last endpoint ends,
// the cluster stays unchanged; when an endpoint no longer supports mTLS, the cluster is planned again although its
// address is unchanged.
func TestHealthOfHeadlessLeavesMTLS(t *testing.T) {
	const name = "outbound|9000||web.b.svc.cluster.local"
	at := func(how string) model.Record {
		return rec(t, model.KindEndpoints, "b/web-1", "{hosts: [web.b.svc.cluster.local], ports: [{name: raw, number: 9000}], endpoints: [{address: 10.1.0.1, "+how+"}]}")
	}
	s := snapshot(svc(t, "b/web", "None", "raw:9000:TCP"), at("mtls: true"))
	p := New(Settings{Snapshot: s})
	n := node("a", "x")
	n.Caps |= xds.CapIdentity
	h := p.Join(n)
	before := h.Set()
	if clusterOf(t, before, name).TransportSocket == nil {
		t.Fatal("no mTLS")
	}
	for i, health := range []string{"HEALTH_NOT_READY", "HEALTH_DRAINING", "HEALTH_ENDED"} {
		c := s.Apply(int64(i)+2, []model.Record{at("mtls: true, health: " + health)}, nil)
		if _, rest := p.PlanEndpoints(c, false); len(rest) != 0 || h.Set() != before {
			t.Errorf("%s: %d edits come again", health, len(rest))
		}
		if problems := p.Check(h); len(problems) != 0 {
			t.Errorf("%s: from scratch there are others: %v", health, problems)
		}
		s = c.New
	}
	for i, how := range []string{"mtls: false", "mtls: true, labels: {a: b}", "mtls: true, node: n1", "mtls: true, network: n1", "mtls: true, ports: {raw: 9001}"} {
		if _, rest := p.PlanEndpoints(s.Apply(int64(i)+10, []model.Record{at(how)}, nil), true); len(rest) != 1 {
			t.Errorf("%s: the edit does not come again", how)
		}
	}
}

// When one of 500 endpoints is added, one listener for each port is built in each scope; when one is removed, its
// listeners are removed. All others stay the same values.
func TestEndpointOfMany(t *testing.T) {
	addresses := addressesTo(501)
	s, edit := headlessMesh(t, addresses[:500])
	p := New(Settings{Snapshot: s})
	handles := []*Handle{p.Join(node("shop", "a")), p.Join(node("other", "b"))}
	listeners := func(h *Handle) map[string]*xds.Resource {
		all := map[string]*xds.Resource{}
		for _, r := range h.Set().Types[xds.Listener].Sorted() {
			all[r.Name] = r
		}
		return all
	}
	was := listeners(handles[0])
	step := func(addresses []string, come int64) {
		t.Helper()
		built := measure(p.input.Pool, func() { p.Apply(edit(addresses)) })
		if want := (work{listeners: come}); built != want {
			t.Errorf("built %+v, want %+v", built, want)
		}
		for _, h := range handles {
			now := listeners(h)
			n := 0
			for name, r := range now {
				if was[name] != r {
					n++
				}
			}
			for name := range was {
				if now[name] == nil {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%d listeners came, went or changed, want 2", n)
			}
		}
		was = listeners(handles[0])
	}
	step(addresses, 2)
	step(addresses[1:], 0)
}

// A headless service with more than 256 endpoints has a problem that states the number of its listeners in each proxy,
// rounded to two digits. With merged listeners those of TCP ports are not counted; a port of unknown protocol still has
// separate listeners.
func TestProblemOfManyListeners(t *testing.T) {
	const ports = "{name: tcp, number: 5432}, {name: any, number: 5433}"
	merged := func(ports ...string) model.Record {
		s := svc(t, "shop/db", "None", ports...).(*model.Service)
		spec := proto.CloneOf(s.Spec)
		spec.MergedListeners = true
		r, err := model.New(s.Key, s.Created, spec)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	both := svc(t, "shop/db", "None", "tcp:5432:TCP", "any:5433:AUTO", "http:8080:HTTP")
	for _, c := range []struct {
		service   model.Record
		endpoints int
		says      string
	}{
		{both, 256, ""}, {both, 257, "each proxy has 510 listeners or more"}, {both, 600, "each proxy has 1200 listeners or more"},
		{merged("tcp:5432:TCP", "any:5433:AUTO"), 600, "each proxy has 600 listeners or more"}, {merged("tcp:5432:TCP"), 600, ""},
	} {
		p := New(Settings{Snapshot: snapshot(c.service, eps(t, "shop/db-1", ports, addressesTo(c.endpoints)...))})
		p.Join(node("shop", "a"))
		p.Join(node("other", "b"))
		var said []string
		for _, problem := range p.Problems() {
			said = append(said, problem.Error())
		}
		if got := strings.Join(said, "\n"); (c.says == "") != (got == "") || !strings.Contains(got, c.says) || len(said) > 1 {
			t.Errorf("%d endpoints: %q, want %q", c.endpoints, got, c.says)
		}
	}
}

// overlays returns the number of views that have an overlay.
func overlays(p *Planner) (n int) {
	for _, pl := range p.views {
		n += min(pl.overlay.Len(), 1)
	}
	return n
}
