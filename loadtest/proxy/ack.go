package proxy

import (
	"fmt"
	"time"

	"navarch.io/navarch/push/xds"
)

// owe counts responses that have come and are not answered yet; negative: that were.
func (s *sim) owe(n int) {
	s.unacked += n
	s.fleet.count.unacked.Add(int64(n))
}

// acknowledge sends an ACK, later where the proxy is slow to.
func (s *sim) acknowledge(t xds.Type, p pending) {
	if s.shape.AckDelay <= 0 {
		s.ack(t, p)
		return
	}
	c := s.session
	s.after(s.shape.AckDelay, func() {
		if s.session == c && s.streaming {
			s.ack(t, p)
		}
	})
}

func (s *sim) ack(t xds.Type, p pending) {
	s.accepted[t] = p.version
	s.write(int(t), request{url: t.URL(), nonce: p.nonce})
	_ = s.session.flush() // the read that follows tells of a connection that is broken
	s.owe(-1)
	now := time.Now()
	s.fleet.count.types[t].acks.Add(1)
	s.fleet.count.ackAfter.Record(now.Sub(p.at))
	for _, probe := range p.probes {
		probe.ack(s.index, now)
	}
}

// refuse sends a NACK in Envoy's words (2). The rest of the response is applied and not recorded: a reconnect claims what
// was held before, and the server may send these again.
func (s *sim) refuse(t xds.Type, m *response, p pending) {
	if s.prior[t] == nil {
		s.prior[t] = map[uint32]*version{}
	}
	for index, old := range m.applied {
		if _, is := s.prior[t][index]; !is {
			s.prior[t][index] = old
		}
		s.dependencies[t].expect(index)
	}
	if t == xds.Cluster {
		s.follow(m)
	}
	if t == xds.Listener && m.needs {
		s.subscribeTo(xds.Route)
		s.subscribeTo(xds.Secret)
	}
	text := "Error adding/updating " + t.Noun() + "(s) "
	for i, name := range m.refused {
		if i > 0 {
			text += "\n"
		}
		text += name + ": refused by the load harness"
	}
	s.write(int(t), request{url: t.URL(), nonce: p.nonce, refusal: text})
	_ = s.session.flush()
	s.owe(-1)
	s.fleet.count.types[t].nacks.Add(1)
}

// await starts the time that the proxy waits for what it asked for.
func (s *sim) await() {
	s.stopWaiting()
	c := s.session
	s.timer = s.after(s.fleet.cfg.WarmTimeout, func() {
		if s.session == c && s.streaming {
			s.timer = nil
			s.giveUp()
		}
	})
}

func (s *sim) stopWaiting() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// giveUp goes on without what has not come, as Envoy does after initial_fetch_timeout.
func (s *sim) giveUp() {
	if s.warm() {
		return
	}
	for _, t := range []xds.Type{xds.Cluster, xds.Listener} {
		if s.asked[t] && !s.answered[t] {
			s.violationOf(Unanswered, t, "", "the first request was not answered")
			s.answered[t] = true
		}
	}
	for _, t := range []xds.Type{xds.Endpoint, xds.Route, xds.Secret} {
		kind := Unanswered
		if t == xds.Endpoint {
			kind = EndpointsMissing
		}
		n, example := 0, uint32(0)
		for index := range s.waiting[t].all() {
			n, example = n+1, index
		}
		if n > 0 {
			s.violation(kind, s.fleet.names.at(t, example),
				fmt.Sprintf("nothing came for %v for %d names, this among them", s.fleet.cfg.WarmTimeout, n))
		}
		s.waiting[t] = nil
	}
	s.settle()
}
