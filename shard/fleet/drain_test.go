package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/kv/kvtest"
)

// A replica with more than its share detects that a push is in progress to many of its streams, that joins wait, or
// that etcd is away, so that the leader is unknown; and it detects the end of each.
func TestDrainSeesAStorm(t *testing.T) {
	const streams = 100
	etcd := kvtest.Start(t)
	a, b := replica(t, etcd, "a", time.Minute), replica(t, etcd, "b", time.Minute)
	epoch := etcd.Elect("leader")
	leading, resign := context.WithCancel(context.Background())
	var leader sync.WaitGroup
	leader.Go(func() { _ = place.Lead(leading, epoch, place.LeaderConfig{Store: etcd.Store, Log: quiet}) })
	t.Cleanup(func() { resign(); leader.Wait() })
	a.eventually(t, "another replica", func(p *place.Placement) bool { return p.Peers() == 1 })
	b.eventually(t, "another replica", func(p *place.Placement) bool { return p.Peers() == 1 })
	for range streams {
		t.Cleanup(a.streams.Join("x", "y"))
	}
	servetest.Soon(t, "it has more than its share", func() bool { n := a.replica.Numbers(); return n.Share > 0 && n.Share < streams })
	storm := func() bool { return a.drainInput(time.Now()).Storm }
	if in := a.drainInput(time.Now()); in.Storm || in.Streams != streams || in.LeaderAge == 0 {
		t.Errorf("while nothing happens: %+v", in)
	}
	away, now := true, time.Now().Add(time.Hour)
	a.cfg.Away = func() bool { return away }
	if in := a.drainInput(now); in.LeaderAge != 0 {
		t.Errorf("while etcd is away a leader is known: %+v", in)
	}
	away = false
	if in := a.drainInput(now.Add(time.Second)); in.LeaderAge != time.Second {
		t.Errorf("a second after that the leader leads for %v", in.LeaderAge)
	}
	a.cfg.Away, a.lastAway = nil, time.Time{}

	// One stream receives a push; as it does not acknowledge, no other stream does.
	server := serve.New(serve.Config{Planner: servetest.OneCluster(), AgentTypes: []serve.AgentType{a.AgentType()}, Log: quiet,
		Budget: fanout.Budget{Streams: 1, Bytes: 1, Slow: time.Hour}, AckDeadline: time.Hour})
	a.Serves(server)
	conn, read := servetest.Dialed(t, server), make(chan struct{})
	for range streams {
		s := servetest.Subscribe(t, conn)
		go func() {
			<-read
			if r, err := s.Recv(); err == nil {
				_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL(), ResponseNonce: r.Nonce})
			}
		}()
	}
	servetest.Soon(t, "a push is a storm", storm)
	servetest.Soon(t, "all of them may be closed", func() bool { return a.drainInput(time.Now()).Movable == streams })
	close(read)
	servetest.Soon(t, "the push is over", func() bool { return !storm() })

	a.admission = place.NewAdmission(place.AdmissionConfig{Pace: place.PaceConfig{Cores: 1, Most: .01}})
	waiting, over := context.WithCancel(t.Context())
	var joins sync.WaitGroup
	for range 2 { // the first is admitted
		joins.Go(func() { _ = a.admission.Wait(waiting, place.CostHolds) })
	}
	servetest.Soon(t, "a join that waits is one", storm)
	over()
	joins.Wait()
	if storm() {
		t.Error("a storm, and nobody waits any more")
	}
}
