package serve

import (
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// rests reports that no goroutine is sending on the stream.
func (st *stream) rests() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sender.task == nobody
}

// A client has converged, once, when it has acknowledged the changes of its view, and not when they were sent.
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
	st := s.all()[0]
	eventually(t, "the sender is done", st.rests)
	if len(took) != 0 {
		t.Fatal("converged before the client acknowledged anything")
	}
	c.ack(r)
	eventually(t, "it has converged", func() bool { return len(took) == 1 })
	c.ask(xds.Listener)
	c.ack(c.next()) // the response to a request is not a change
	if len(took) != 1 {
		t.Error("converged twice")
	}
}

// The view changes again, and the client acknowledges the earlier change: it has converged only when it acknowledges
// the last change, and the time starts with the first.
func TestConvergedIsNotWhatWasBefore(t *testing.T) {
	took := make(chan time.Duration, 10)
	p := newPlanner(cluster("a"), endpoints("a", "10.0.0.1:80"))
	s, addr := start(t, Config{Planner: p, Hooks: Hooks{Converged: func(d time.Duration) { took <- d }}})
	c := dial(t, addr)
	c.ask(xds.Cluster)
	c.ask(xds.Endpoint, "a")
	c.ack(c.next())
	c.ack(c.next())
	eventually(t, "all is acknowledged", func() bool { return s.Inspect()[0].Unacked == 0 })
	st := s.all()[0]
	eventually(t, "the sender is done", st.rests)
	p.put(endpoints("a", "10.0.0.2:80"))
	before := c.next()
	first := st.movedAt.Load()
	eventually(t, "the sender is done", st.rests)
	p.quietly(endpoints("a", "10.0.0.3:80")) // without a turn
	c.ack(before)
	c.ask(xds.Listener) // read after the acknowledgement; its response is the turn
	last := c.next()
	if len(took) != 0 {
		t.Error("converged with a set that is not the newest")
	}
	if at := st.movedAt.Load(); at != first {
		t.Errorf("it has moved at %d, and counts from %d", first, at)
	}
	c.ack(last)
	c.ack(c.next())
	eventually(t, "it has converged", func() bool { return len(took) == 1 })
}
