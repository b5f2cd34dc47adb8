package proxy

import (
	"fmt"
	"time"

	"navarch.io/navarch/push/xds"
)

// owe adds n to the responses that have arrived and are not yet answered; a negative n subtracts answered ones.
func (s *sim) owe(n int) {
	s.unacked += n
	s.fleet.count.unacked.Add(int64(n))
}

// acknowledge sends an ACK, after Behaviour.AckDelay if that is set.
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

// ack sends the ACK of a response.
func (s *sim) ack(t xds.Type, p pending) {
	s.accepted[t] = p.version
	s.write(int(t), request{url: t.URL(), nonce: p.nonce})
	_ = s.session.flush() // the next read reports a broken connection
	s.owe(-1)
	now := time.Now()
	s.fleet.count.types[t].acks.Add(1)
	s.fleet.count.ackAfter.Record(now.Sub(p.at))
	for _, probe := range p.probes {
		probe.ack(s.index, now)
	}
}

// refuse sends a NACK with Envoy's error text (2). The other resources of the response are applied but not recorded.
// After a reconnect the proxy claims the versions from before the response, and the server may send these resources
// again.
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

// await starts the time limit for resources that the proxy waits for.
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

// stopWaiting stops that time limit.
func (s *sim) stopWaiting() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// giveUp continues without the missing resources, as Envoy does after initial_fetch_timeout, and reports them as
// violations.
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
