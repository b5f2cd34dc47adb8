package fleet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/kv/kvtest"
)

// placements returns placements of a replica b: without a ring, with a second replica a, and after a has left.
func placements(t *testing.T) (none, two, one *place.Placement) {
	t.Helper()
	etcd := kvtest.Start(t)
	a, b := replica(t, etcd, "a", time.Minute), replica(t, etcd, "b", time.Minute)
	none = b.replica.Placement()
	epoch := etcd.Elect("leader")
	leading, resign := context.WithCancel(t.Context())
	var leader sync.WaitGroup
	leader.Go(func() { _ = place.Lead(leading, epoch, place.LeaderConfig{Store: etcd.Store, Log: quiet}) })
	t.Cleanup(func() { resign(); leader.Wait() })
	for _, f := range []*Fleet{a, b} {
		f.eventually(t, "two replicas", func(p *place.Placement) bool { return len(p.Ring().Members()) == 2 && p.Peers() == 1 })
	}
	two = b.replica.Placement()
	a.member.Leave()
	b.eventually(t, "a has left", func(p *place.Placement) bool { return len(p.Ring().Members()) == 1 && p.Peers() == 0 })
	return none, two, b.replica.Placement()
}

// At most the given number of agents is notified of another owner. Agents whose proxy stays, and agents without a
// request, do not count. A first request is answered from the newest placement.
func TestAgentsAreNotifiedInTurn(t *testing.T) {
	none, two, one := placements(t)
	var all []*seat
	others := 0 // proxies that a owns while there are two
	for i := range 60 {
		s := &seat{namespace: fmt.Sprint("ns-", i)}
		if all = append(all, s); s.notifiedOf(none) != none {
			t.Fatal("not notified by the placement that there was")
		}
		if _, self := two.Owner(s.namespace, ""); !self {
			others++
		}
	}
	if others < 10 || others > 50 {
		t.Fatalf("a owns %d of 60", others)
	}
	pass := func(p *place.Placement, n int, listens bool) (notified int, r round) {
		r = round{placement: p, n: n}
		for _, s := range all {
			if r.turn(s, listens) {
				notified++
			}
		}
		return notified, r
	}
	// Of 60 agents without a known owner: those whose proxy stays are notified at once, the others in turn.
	if notified, r := pass(two, 0, true); notified != 60-others || r.left != others {
		t.Errorf("with none to go: %d notified, %d left", notified, r.left)
	}
	if notified, r := pass(two, 7, true); notified != 7 || r.left != others-7 {
		t.Errorf("with seven to go: %d notified, %d left", notified, r.left)
	}
	if notified, r := pass(two, 1000, true); notified != others-7 || r.left != 0 {
		t.Errorf("with all to go: %d notified, %d left", notified, r.left)
	}
	if notified, r := pass(two, 1000, true); notified != 0 || r.left != 0 {
		t.Errorf("when all were notified: %d notified, %d left", notified, r.left)
	}
	// All proxies now stay at b: the agents of those that were to move are notified.
	if notified, r := pass(one, 0, true); notified != others || r.left != 0 {
		t.Errorf("all stay: %d notified, %d left", notified, r.left)
	}
	// An agent that has not requested its owner costs no turn, and receives the newest owner when it does.
	if notified, r := pass(two, 0, false); notified != 0 || r.left != 0 {
		t.Errorf("nobody listens: %d notified, %d left", notified, r.left)
	}
	first := &seat{namespace: all[0].namespace}
	if r := (&round{placement: two}); r.turn(first, true) || r.left != 0 || first.notifiedOf(one) != two || all[0].notifiedOf(one) != two {
		t.Errorf("who asks for the first time is notified by %v", first.notifiedOf(one))
	}
}

// passing is a server without streams that records each placement passed on.
type passing struct {
	Server
	passed chan struct{}
}

func (p passing) AgentResourceChangedFor(string, func(serve.Proxy, bool) bool) {
	p.passed <- struct{}{}
}

// Placements are passed on to agents, the first one as well as those that come after it.
func TestPlacementsArePassedOn(t *testing.T) {
	etcd := kvtest.Start(t)
	f := replica(t, etcd, "a", time.Minute)
	passed := make(chan struct{}, 1000)
	f.server = passing{passed: passed}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = f.notify(ctx) })
	next := func(what string) {
		t.Helper()
		select {
		case <-passed:
		case <-time.After(time.Minute):
			t.Fatalf("%s was not passed on", what)
		}
	}
	next("the placement of the beginning")
	epoch := etcd.Elect("leader")
	running.Go(func() { _ = place.Lead(ctx, epoch, place.LeaderConfig{Store: etcd.Store, Log: quiet}) })
	f.eventually(t, "a ring", (*place.Placement).InRing)
	next("the ring")
	f.member.Leave()
	f.eventually(t, "no ring", func(p *place.Placement) bool { return !p.InRing() })
	next("the ring without it")
}
