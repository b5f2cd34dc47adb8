package agent

import "time"

// credential is the kind of credential that a request uses.
type credential uint8

const (
	byToken credential = iota
	byCertificate
)

// String returns the kind of credential, for logs.
func (c credential) String() string { return [...]string{"token", "certificate"}[c] }

// event is an input of the schedule.
type event interface{ isEvent() }

type (
	begin  struct{}
	issued struct{ notAfter time.Time }
	failed struct{}
	due    struct{} // the wake-up time has come
	renew  struct{} // a new certificate is wanted now
)

func (begin) isEvent()  {}
func (issued) isEvent() {}
func (failed) isEvent() {}
func (due) isEvent()    {}
func (renew) isEvent()  {}

// effect is an action for the caller of Step: a request (ask), or a wake-up at a given time (wakeAt). At most one
// request is under way, and at most one wake-up is set.
type effect interface{ isEffect() }

type (
	ask    struct{ with credential }
	wakeAt struct{ at time.Time }
)

func (ask) isEffect()    {}
func (wakeAt) isEffect() {}

// The pause after a failure is random, between half a step and a whole step. So agents that have lost their CA spread
// their requests. The first step is retryBase. The step doubles with each further failure, up to a limit.
const (
	retryBase    = 500 * time.Millisecond
	retryMax     = 30 * time.Second
	retryMaxHeld = 5 * time.Minute // largest limit; applies while the certificate in use has at least 100 minutes left
)

// schedule decides when to request a certificate, and with which credential. It does no I/O and reads no clock.
type schedule struct {
	at     float64 // fraction of the remaining lifetime after which to renew
	jitter float64 // largest relative random change of that fraction, in either direction
	token  bool    // a token file is configured

	asking   bool
	again    bool // renew came while a request was under way
	notAfter time.Time
	failures int
}

// Step applies one event and returns the actions for the caller, or nil if no action is due. The argument random is in
// [0, 1). Calls must not overlap.
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
		part := min(s.at*(1+s.jitter*(2*random-1)), (1+s.at)/2)
		wait := time.Duration(float64(life) * part)
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

// credential returns byCertificate if no token file is configured. With a token file, it returns byToken if there is no
// valid certificate. With a token file and a valid certificate, it begins with byCertificate, and each failure switches
// to the other kind. The switch helps if the CA refuses each request with the certificate, because it is revoked or has
// an unknown issuer.
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

// pause returns the time until the next attempt. The pause grows with failures, up to a limit. The limit is higher
// while the certificate has much lifetime left. The pause leaves time for several more attempts before the certificate
// expires.
func (s *schedule) pause(now time.Time, random float64) time.Duration {
	left := s.notAfter.Sub(now)
	step := min(retryBase<<min(s.failures-1, 10), min(max(left/20, retryMax), retryMaxHeld))
	if left > 0 {
		step = min(step, max(left/4, retryBase/5))
	}
	return step/2 + time.Duration(random*float64(step/2))
}
