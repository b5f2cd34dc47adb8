package serve

import (
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// A stream is unsettled from the change of its view until its client has acknowledged or refused the change, or has
// left. Later changes of the view, and streams that join later, do not count.
func TestUnsettled(t *testing.T) {
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p})
	c := dial(t, addr)
	c.ask(xds.Cluster)
	first := c.next()
	joining := s.Unsettled(time.Now())
	if n := joining.Left(); n != 1 {
		t.Fatalf("a client that has joined and acknowledged nothing: %d are unsettled", n)
	}
	c.ack(first)
	eventually(t, "the client is up to date", func() bool { return joining.Left() == 0 })
	p.put(cluster("b"))
	moved, before := s.Unsettled(time.Now()), s.Unsettled(time.Now())
	if n := moved.Left(); n != 1 {
		t.Fatalf("its view has moved: %d are unsettled", n)
	}
	late := dial(t, addr)
	late.ask(xds.Cluster)
	late.next()
	if n := moved.Left(); n != 1 {
		t.Fatalf("another one joined: %d are unsettled", n)
	}
	c.ack(c.next())
	eventually(t, "it has acknowledged that", func() bool { return moved.Left() == 0 })
	p.put(cluster("c"))
	again, gone := s.Unsettled(time.Now()), s.Unsettled(time.Now())
	if moved.Left() != 0 || again.Left() != 2 {
		t.Errorf("the views move again: %d of before, %d of now", moved.Left(), again.Left())
	}
	if n := before.Left(); n != 0 {
		t.Errorf("%d are unsettled that had acknowledged, and nobody has looked since", n)
	}
	for _, st := range s.all() {
		st.kill(errSentAway)
	}
	eventually(t, "the streams have ended", func() bool { return gone.Left() == 0 })
}
