package serve

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// crowd is a set of proxies that refuse one version and accept all others.
type crowd struct {
	t       *testing.T
	bad     string
	refused atomic.Int32
	mu      sync.Mutex
	has     map[string]int // the number of proxies that have accepted a version
}

func (c *crowd) join(addr string, proxies int) {
	for range proxies {
		cl := dial(c.t, addr)
		cl.ask(xds.Cluster)
		go func() {
			for {
				r, err := cl.Recv()
				if err != nil {
					return // the test is over, or its wait has timed out
				}
				bad := ""
				for _, res := range r.Resources {
					if res.Version == c.bad {
						bad = res.Name
					}
				}
				if bad != "" {
					c.refused.Add(1)
					cl.nack(r, "Error adding/updating cluster(s) "+bad+": why")
					continue
				}
				c.mu.Lock()
				for _, res := range r.Resources {
					c.has[res.Version]++
				}
				c.mu.Unlock()
				cl.ack(r)
			}
		}()
	}
}

// have waits until this many proxies have accepted a version.
func (c *crowd) have(r *xds.Resource, proxies int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%s is with %d", r.Name, proxies), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.has[r.Version] >= proxies
	})
}

func stat(name, stat string) *xds.Resource {
	return cluster(name, func(c *clusterv3.Cluster) { c.AltStatName = stat })
}

// After good edits comes a version that all proxies refuse, and then good edits again: whatever the number of proxies
// that had the previous edit, few receive the bad version, and all receive the good ones. If fifty proxies that arrive
// one after the other have one identity, the version is soon withheld from this identity. They then accept the rest,
// and this must not send the version to many proxies of the next identity.
func TestBadVersionReachesAFew(t *testing.T) {
	for name, size := range map[string]struct{ proxies, enough, each int }{
		"all have the last edit": {100, 100, 1}, "half have it": {100, 50, 1}, "one has it": {100, 1, 1}, "fifty of each identity": {200, 200, 50},
	} {
		t.Run(name, func(t *testing.T) {
			proxies, enough := size.proxies, size.enough
			bad, first := stat("c", "bad"), stat("d", "0")
			c := &crowd{t: t, bad: bad.Version, has: map[string]int{}}
			p := newPlanner(stat("c", "good"), first)
			var identities atomic.Int32
			withheld := quarantine.New(quarantine.Config{})
			// With this patience no proxy is slow, whatever the machine.
			_, addr := start(t, Config{Planner: p, Budget: fanout.Budget{Slow: patience}, Quarantine: withheld,
				Authenticate: func(context.Context) (attest.Caller, error) {
					n := int(identities.Add(1))
					who := callerOf(fmt.Sprintf("spiffe://mesh/ns/shop/sa/%d", n/size.each))
					who.Token = fmt.Sprint(n)
					return who, nil
				}})
			c.join(addr, proxies)
			c.have(first, proxies)
			edit := 0
			good := func(enough int) {
				edit++
				r := stat("d", fmt.Sprint(edit))
				p.put(r)
				c.have(r, enough)
			}
			for range 5 {
				good(enough)
			}
			p.put(bad)
			eventually(t, "it is withheld from all", func() bool {
				return slices.ContainsFunc(withheld.Withheld(), func(w quarantine.Withheld) bool { return w.Identity == "" })
			})
			for range 3 {
				good(enough)
			}
			good(proxies)
			fixed := stat("c", "fixed")
			p.put(fixed)
			c.have(fixed, proxies)
			// A plan is first sent to eight proxies. The refusals of three identities withhold the version; the first refusal of
			// each keeps its place for a second.
			few := int32(8 + 3)
			if size.each > 1 {
				// Each identity is tried with the first window. The place of its second refusal becomes free at once and that of
				// its first later, for two more proxies.
				few = 3 * (8 + 2)
			}
			if n := c.refused.Load(); n > few {
				t.Errorf("%d of %d proxies were sent a version that all refuse", n, proxies)
			} else {
				t.Logf("%d of %d proxies were sent it", n, proxies)
			}
		})
	}
}

// A refusal is counted before its place of the rollout is used for another proxy: the third refusal of an identity
// withholds the version from the identity, so that no fourth proxy is sent it, however long it takes to find the
// objects of the refused resource.
func TestRefusalCountsFirst(t *testing.T) {
	bad, first := stat("c", "bad"), stat("d", "0")
	c := &crowd{t: t, bad: bad.Version, has: map[string]int{}}
	p := newPlanner(stat("c", "good"), first)
	var identities, refusals, counted, acked atomic.Int32
	var srv *Server
	srv, addr := start(t, Config{Planner: p, Budget: fanout.Budget{Rollout: 2, Slow: patience},
		Hooks: Hooks{Refused: func(Refusal) { counted.Add(1) }, Acked: func(xds.Type, string, int64, time.Duration) { acked.Add(1) }},
		Blame: func(Proxy, xds.Type, string, string) []model.Place {
			// A turn that is requested now comes after that of a fourth proxy, if there is one.
			if refusals.Add(1) == 3 {
				turn := make(chan struct{})
				s := srv.loop.Join("", false, func(bool, int64) int { close(turn); return 0 })
				s.Mark(fanout.Answers)
				<-turn
				s.Leave()
			}
			return nil
		},
		Authenticate: func(context.Context) (attest.Caller, error) {
			who := callerOf("spiffe://mesh/ns/shop/sa/web")
			who.Token = fmt.Sprint(identities.Add(1))
			return who, nil
		}})
	c.join(addr, 8)
	eventually(t, "all are up to date, so that plans are tried on them", func() bool { return acked.Load() >= 8 })
	p.put(bad)
	last := stat("d", "1")
	eventually(t, "three have refused it", func() bool { return counted.Load() >= 3 })
	p.put(last)
	c.have(last, 8)
	if n := c.refused.Load(); n != 3 {
		t.Errorf("%d proxies of one identity were sent a version that three refused", n)
	}
}

// planned returns the set of a plan with two clusters; only one of them has new endpoints in each plan.
func planned(plan int64, stat string, address string) *manifest.Set {
	s := &manifest.Set{Revision: plan, Plan: plan, FastHosts: []string{"a"}}
	s.Types[xds.Cluster][manifest.Scope] = manifest.Of(cluster("a"), cluster("b", func(c *clusterv3.Cluster) { c.AltStatName = stat }))
	s.Types[xds.Endpoint][manifest.Scope] = manifest.Of(endpoints("a", address), endpoints("b", "10.0.0.9:80"))
	return s
}

// A stream is sent a plan only after it was admitted to it: neither in the response to a request nor in a turn for an
// older plan. Its acknowledgement or refusal counts for the plan that was sent.
func TestPlansWaitForTheirTurn(t *testing.T) {
	srv := New(Config{Planner: newPlanner()})
	st, proxy, out := taped(srv, planned(5, "one", "10.0.0.1:80"))
	st.may.Store(anyPlan)
	sent := func(want ...string) {
		t.Helper()
		out.sent(t, want)
	}
	ack := func(types ...xds.Type) {
		for _, typ := range types {
			give(t, st, delta.Request{Type: typ, Nonce: st.state.Info(typ).Sent})
		}
	}
	give(t, st, delta.Request{Type: xds.Cluster})
	give(t, st, delta.Request{Type: xds.Endpoint, Subscribe: slices.Values([]string{"a", "b"})})
	proxy.set = planned(6, "two", "10.0.0.1:80") // a joining stream does not try plans
	st.send(false, 0)
	sent("CDS", "EDS")
	ack(xds.Cluster, xds.Endpoint)
	if st.may.Load() != 6 || st.rollout.on {
		t.Fatalf("up to date with plan %d, %+v", st.may.Load(), st.rollout)
	}

	proxy.set = planned(7, "three", "10.0.0.2:80")
	st.send(false, 0)
	sent("EDS") // the changed endpoints
	ack(xds.Endpoint)
	st.send(false, 6)
	sent()
	st.send(false, 7)
	sent("CDS", "EDS")
	ack(xds.Endpoint)
	if !st.rollout.on {
		t.Error("the ACK of endpoints has ended the rollout")
	}
	ack(xds.Cluster)
	if st.rollout.on || !st.rollout.sent {
		t.Errorf("taken, and %+v", st.rollout)
	}

	proxy.set = planned(9, "three", "10.0.0.2:80")
	st.send(false, 8)
	if st.rollout.on {
		t.Error("the rollout of a plan has begun that the stream was not let in for")
	}
	st.send(false, 9)
	sent()
	if st.rollout != (rolloutState{plan: 9, has: 9}) {
		t.Errorf("there was nothing to be sent of the plan, and %+v", st.rollout)
	}

	proxy.set = planned(10, "four", "10.0.0.2:80")
	st.send(false, 11) // the views of others have changed; this one has not
	sent("CDS", "EDS")
	ack(xds.Cluster, xds.Endpoint)
	proxy.set = planned(11, "five", "10.0.0.2:80")
	st.send(false, 0)
	sent()
	st.send(false, 11)
	sent("CDS", "EDS")
	ack(xds.Cluster, xds.Endpoint)
	if st.rollout.on || st.may.Load() != 11 {
		t.Errorf("let in for plan %d, %+v", st.may.Load(), st.rollout)
	}
}

// The view of a stream that is admitted to a plan changes to this plan and requests a turn a moment later. This second
// turn has nothing to send, and returns its place at once.
func TestSecondTurnOfAPlanEnds(t *testing.T) {
	p := newPlanner(cluster("a"))
	var turns, refused atomic.Int32
	srv, addr := start(t, Config{Planner: p, Budget: fanout.Budget{Rollout: 1, Slow: time.Hour},
		Hooks: Hooks{Queued: func(time.Duration) { turns.Add(1) }, Refused: func(Refusal) { refused.Add(1) }}})
	clients := []*client{dial(t, addr), dial(t, addr)}
	for _, c := range clients {
		c.ask(xds.Cluster)
		c.ack(c.next())
	}
	eventually(t, "both are up to date", func() bool {
		all := srv.all()
		return len(all) == 2 && all[0].may.Load() != anyPlan && all[1].may.Load() != anyPlan
	})
	p.put(cluster("b"))
	for _, c := range clients {
		// After a refusal the rollout stays at one stream at a time.
		go func() { c.nack(c.next(), "Error adding/updating cluster(s) b: why") }()
	}
	eventually(t, "both have had it", func() bool { return refused.Load() == 2 })
	for _, st := range srv.all() {
		before := turns.Load()
		st.tryPlan(p.set.Plan, time.Now())
		eventually(t, "it had its second turn", func() bool { return turns.Load() > before && srv.loop.Waiting(fanout.Config) == 0 })
		if len(srv.all()) < len(clients) {
			t.Fatal("the test took so long that a client has left")
		}
	}
}

// A joining stream does not try plans: it receives changes that no proxy has accepted yet, and counts in the rollout
// when it is up to date.
func TestJoinsAreNotTried(t *testing.T) {
	p := newPlanner(cluster("a"))
	srv, addr := start(t, Config{Planner: p, Budget: fanout.Budget{Rollout: 1, Slow: patience}})
	old, late := dial(t, addr), dial(t, addr)
	old.ask(xds.Cluster)
	old.ack(old.next())
	eventually(t, "it is up to date", func() bool { all := srv.all(); return len(all) == 1 && all[0].may.Load() != anyPlan })
	late.ask(xds.Cluster)
	first := late.next()
	p.put(cluster("b"))
	second := old.next() // without an ACK it keeps the only place
	late.ack(first)
	late.ack(late.next())
	eventually(t, "both are up to date", func() bool { return srv.all()[0].may.Load()+srv.all()[1].may.Load() == 2*2 })
	old.ack(second)
	p.put(cluster("c"))
	var both sync.WaitGroup
	for _, c := range []*client{old, late} { // one after the other, in any order
		both.Go(func() {
			r, err := c.Recv()
			if err != nil {
				t.Error(err)
				return
			}
			c.ack(r)
		})
	}
	both.Wait()
}
