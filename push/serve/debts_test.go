package serve

import (
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// A stream owes a published change until its client acknowledges or refuses it, or is gone. A change to which the
// client does not subscribe is paid too.
func TestDebts(t *testing.T) {
	l, p := ledger.New(), newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p, Ledger: l})
	c := dial(t, addr)
	c.ask(xds.Cluster)
	c.ack(c.next())
	eventually(t, "all is acknowledged", func() bool { return s.Inspect()[0].Unacked == 0 })
	all := func(string) bool { return true }
	publish := func(revision int64, change func()) ledger.Target {
		l.Begin(ledger.Plan{Span: model.Span{First: revision, Last: revision}, Views: map[string]int{s.Inspect()[0].Namespace: 1},
			Objects: []model.Key{{Kind: model.KindService, Name: "b"}}})
		change()
		l.Seal(revision)
		return l.Find(revision, ledger.Object{}, all, true)
	}
	counts := func(affected, acknowledged, refused, gone int) {
		t.Helper()
		eventually(t, "the counts", func() bool {
			got := l.Changes(all, true)[0]
			return got.Affected == affected && got.Acknowledged() == acknowledged && got.Refused == refused && got.Gone == gone
		})
	}
	target := publish(p.now()+1, func() { p.put(cluster("b")) })
	r := c.next()
	owing, n := s.Owing(target.Of, all, 5)
	if n != 1 || len(owing) != 1 || owing[0].Types[xds.Cluster].InFlight != 1 || time.Since(owing[0].Since) > time.Minute {
		t.Fatalf("%d owe: %+v", n, owing)
	}
	if _, n := s.Owing(target.Of, func(string) bool { return false }, 5); n != 0 {
		t.Error("a caller sees the proxies of others")
	}
	c.ack(r)
	counts(1, 1, 0, 0)
	if _, n := s.Owing(target.Of, all, 5); n != 0 {
		t.Error("it still owes")
	}
	publish(p.now()+1, func() { p.put(endpoints("x", "10.0.0.1:80")) }) // no subscription
	counts(1, 1, 0, 0)
	publish(p.now()+1, func() { p.put(cluster("c")) })
	c.nack(c.next(), "no")
	counts(1, 0, 1, 0)

	// A version that was refused is not sent again when it returns, and the change that brings it back is refused, too.
	publish(p.now()+1, func() { p.put(large("a", 10, "0")) })
	c.nack(c.next(), "no")
	counts(1, 0, 1, 0)
	publish(p.now()+1, func() { p.put(cluster("a")) })
	c.ack(c.next())
	counts(1, 1, 0, 0)
	back := p.now() + 1
	publish(back, func() { p.put(large("a", 10, "0")) })
	counts(1, 0, 1, 0)
	returned := func(r Refusal) bool { return r.Name == "a" && r.Since == back && r.Revision < back }
	if all := s.Refusals(); !slices.ContainsFunc(all, returned) {
		t.Errorf("refusals: %+v", all)
	}
	publish(p.now()+1, func() { p.put(endpoints("x", "10.0.0.2:80")) }) // a change that is not refused
	counts(1, 1, 0, 0)

	publish(p.now()+1, func() { p.put(cluster("d")) })
	c.next()
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	counts(1, 0, 0, 1)
}

// now returns the revision of the present set.
func (p *fakePlanner) now() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set.Revision
}
