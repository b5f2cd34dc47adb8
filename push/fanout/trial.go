package fanout

import "time"

// calm is how long no configuration was under way before the next change is tried again on a few.
const calm = time.Second

// trial delivers configuration progressively: after a quiet time it goes to `least` streams, and every stream that takes it
// lets two more have their turn, so that a change for 10,000 proxies has doubled eleven times before the last gets it. A
// refusal takes the window back: what comes then goes out a few at a time, until the refused version is withheld (verdicts)
// or replaced. The lane of endpoints is not held.
//
// The window is the lane's and not one change's: changes that follow each other without a quiet time share it.
type trial struct {
	least  int
	window int       // streams that may be trying at once
	trying int       // were granted a turn, and have not acknowledged everything
	last   time.Time // when one was last trying
}

// open says whether another stream may have its turn.
func (t *trial) open(now time.Time) bool {
	if t.trying == 0 && now.Sub(t.last) > calm {
		t.window = t.least
	}
	return t.trying < t.window
}

func (t *trial) refused() { t.window = t.least }

func (q *Queue[S]) try(s *entry[S], now time.Time) {
	if !s.trying {
		s.trying = true
		q.trial.trying++
	}
	q.trial.last = now
}

// settle is called when a stream may have acknowledged all that it was sent.
func (q *Queue[S]) settle(s *entry[S], now time.Time) {
	if s.trying && !s.granted && s.owing == 0 {
		q.untry(s)
		q.trial.last = now
		q.trial.window = min(q.trial.window+1, 1<<20)
	}
}

func (q *Queue[S]) untry(s *entry[S]) {
	q.beside.leave(s)
	if s.trying {
		s.trying = false
		q.trial.trying--
	}
}
