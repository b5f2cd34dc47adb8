package serve

import (
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// A client has converged when it has acknowledged what its view moved to, not when that was sent; and once.
func TestConvergedIsAcknowledged(t *testing.T) {
	took := make(chan time.Duration, 10)
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p, Hooks: Hooks{Converged: func(d time.Duration) { took <- d }}})
	c := dial(t, addr)
	c.ask(xds.Cluster)
	c.ack(c.next())
	eventually(t, "all is acknowledged", func() bool { return s.Inspect()[0].Unacked == 0 })
	p.put(cluster("b"))
	r := c.next()
	eventually(t, "the sender is done", func() bool {
		st := s.all()[0]
		st.mu.Lock()
		defer st.mu.Unlock()
		return !st.sending
	})
	if len(took) != 0 {
		t.Fatal("converged before the client acknowledged anything")
	}
	c.ack(r)
	eventually(t, "it has converged", func() bool { return len(took) == 1 })
	c.ask(xds.Listener)
	c.ack(c.next()) // an answer is no move
	if len(took) != 1 {
		t.Error("converged twice")
	}
}
