package agent

import "time"

// credential is what a request for a certificate goes with.
type credential uint8

const (
	byToken credential = iota
	byCertificate
)

func (c credential) String() string { return [...]string{"token", "certificate"}[c] }

// event is something that happened to the schedule.
type event interface{ isEvent() }

type (
	begin  struct{}
	issued struct{ notAfter time.Time }
	failed struct{}
	due    struct{} // the alarm went off
	renew  struct{} // somebody wants a new certificate now
)

func (begin) isEvent()  {}
func (issued) isEvent() {}
func (failed) isEvent() {}
func (due) isEvent()    {}
func (renew) isEvent()  {}

// effect is what has to be done: at most one request is under way, at most one alarm is set.
type effect interface{ isEffect() }

type (
	ask    struct{ with credential }
	wakeAt struct{ at time.Time }
)

func (ask) isEffect()    {}
func (wakeAt) isEffect() {}

// Back-off after failures: doubling, over the upper half of each step, so that a fleet that lost its CA spreads.
const (
	retryBase    = 500 * time.Millisecond
	retryMax     = 30 * time.Second
	retryMaxHeld = 5 * time.Minute // while the certificate in use has hours left
)

// schedule decides when to ask for a certificate, and with which credential. It has no clock and no socket.
type schedule struct {
	at     float64 // part of the remaining life after which to renew
	jitter float64 // of that, either way
	token  bool    // there is a token to ask with

	asking   bool
	again    bool // asked for while a request was under way
	notAfter time.Time
	failures int
}

// Step takes one event and a random number from [0, 1), and says what to do.
func (s *schedule) Step(now time.Time, random float64, e event) []effect {
	switch e := e.(type) {
	case begin, due:
		return s.ask(now)
	case renew:
		if s.asking {
			s.again = true
			return nil
		}
		return s.ask(now)
	case issued:
		s.asking, s.failures, s.notAfter = false, 0, e.notAfter
		if s.again {
			s.again = false
			return s.ask(now)
		}
		life := max(e.notAfter.Sub(now), 0)
		wait := time.Duration(float64(life) * s.at * (1 + s.jitter*(2*random-1)))
		return []effect{wakeAt{now.Add(max(wait, retryBase/5))}}
	case failed:
		s.asking = false
		s.failures++
		return []effect{wakeAt{now.Add(s.pause(now, random))}}
	}
	return nil
}

func (s *schedule) ask(now time.Time) []effect {
	if s.asking {
		return nil
	}
	s.asking, s.again = true, false
	return []effect{ask{s.credential(now)}}
}

// credential is the certificate while it is valid, and the token otherwise; after a failure the other of the two, for a
// certificate whose issuer the CA no longer knows, or that was revoked, never gets better.
func (s *schedule) credential(now time.Time) credential {
	valid := s.notAfter.After(now)
	if !s.token {
		return byCertificate
	}
	if !valid || s.failures%2 == 1 {
		return byToken
	}
	return byCertificate
}

// pause grows with failures. While there is a certificate with much life left it grows further, for nothing is urgent; but
// it leaves time for several more attempts before the certificate expires.
func (s *schedule) pause(now time.Time, random float64) time.Duration {
	left := s.notAfter.Sub(now)
	step := min(retryBase<<min(s.failures-1, 10), min(max(left/20, retryMax), retryMaxHeld))
	if left > 0 {
		step = min(step, max(left/4, retryBase/5))
	}
	return step/2 + time.Duration(random*float64(step/2))
}
