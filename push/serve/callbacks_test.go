package serve

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/xds"
)

// No callback of a Config is called while a stream's lock is held: each may inspect the Server's streams, which locks
// each of them. With a call under the lock, the stream would hang.
func TestCallbacksMayAskTheServer(t *testing.T) {
	var srv atomic.Pointer[Server]
	var keys atomic.Int32
	look := func() {
		if s := srv.Load(); s != nil {
			s.Inspect()
		}
	}
	b := &board{}
	b.res.Store(agentResource(t, "A", "1"))
	agent := AgentType{TypeURL: agentURL, Resource: func(Client, Proxy) *AgentResource { look(); return b.res.Load() }}
	p := &clerk{fakePlanner: newPlanner(cluster("a")), t: t, made: map[string]*xds.Resource{"one": keyPair(t, "one")}}
	s, addr := start(t, Config{Planner: p, AgentTypes: []AgentType{agent},
		Authenticate: func(context.Context) (attest.Caller, error) { return callerOf("spiffe://mesh/ns/shop/sa/web"), nil },
		MayHaveKeys:  func(attest.Caller) (bool, bool) { look(); keys.Add(1); return true, false },
		Hooks: Hooks{Sent: func(xds.Type, int, int, int) { look() }, Converged: func(time.Duration) { look() }, Refused: func(Refusal) { look() },
			Acked: func(xds.Type, string, int64, time.Duration) { look() }}})
	srv.Store(s)
	c := dial(t, addr)
	c.ask(xds.Secret, "one")
	c.ack(c.next())
	keys.Store(0)
	p.put(keyPair(t, "one"))
	c.nack(c.next(), "no")
	c.ask(xds.Cluster)
	c.ack(c.next())
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL})
	c.ack(c.next())
	b.res.Store(agentResource(t, "A", "2"))
	s.AgentResourceChangedFor(agentURL, func(Proxy, bool) bool { look(); return true })
	c.ack(c.next())
	if keys.Load() == 0 {
		t.Error("it was not asked whether the new version may be sent")
	}
}
