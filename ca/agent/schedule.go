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

// effect is an action for the caller of Step: a certificate request (ask), or an event due at a given time (wakeAt). A
// new wakeAt replaces the previous one. There is no new ask while a request is under way.
type effect interface{ isEffect() }

type (
	ask    struct{ with credential }
	wakeAt struct{ at time.Time }
)

func (ask) isEffect()    {}
func (wakeAt) isEffect() {}

// Bounds of the pause after a failed request. The longest pause is retryBase after the first failure. It doubles with
// each further failure, up to a limit. The actual pause is random, between half of the longest pause and the longest
// pause. So agents that have lost their CA do not all send their requests at the same time.
const (
	retryBase    = 500 * time.Millisecond
	retryMax     = 30 * time.Second // smallest limit: the certificate in use is valid for less than 10 minutes
	retryMaxHeld = 5 * time.Minute  // largest limit: the certificate in use is valid for at least 100 minutes
)

// schedule decides when to request a certificate, and with which credential. It does no I/O and reads no clock.
type schedule struct {
	at     float64 // fraction of a new certificate's remaining lifetime after which to renew
	jitter float64 // largest relative random change of the field at, in either direction
	token  bool    // a token file is configured

	asking   bool
	again    bool // the event renew came while a request was under way
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

// credential returns byCertificate if no token file is configured. If there is a token file but no valid certificate,
// it returns byToken. If there are both, the first attempt uses byCertificate, and each failure switches to the other
// kind. The switch helps if the CA refuses the certificate because it is revoked or has an unknown issuer.
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

// pause returns the time until the next attempt. The pause grows with each failure, up to a limit (retryMax,
// retryMaxHeld). While the certificate in use is valid, the pause is at most a quarter of its remaining lifetime, or
// 0.1 s if that is longer.
func (s *schedule) pause(now time.Time, random float64) time.Duration {
	left := s.notAfter.Sub(now)
	step := min(retryBase<<min(s.failures-1, 10), min(max(left/20, retryMax), retryMaxHeld))
	if left > 0 {
		step = min(step, max(left/4, retryBase/5))
	}
	return step/2 + time.Duration(random*float64(step/2))
}
