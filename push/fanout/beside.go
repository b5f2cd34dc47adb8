package fanout

import "time"

// beside bounds configuration that is in flight while endpoints change. A stream that is being sent a great route takes its
// endpoints behind it, and all that is being sent shares one machine: a namespace whose routes are edited without end would
// hold up the endpoints of the others by as much as is in flight. Where no endpoints change, configuration has the whole budget.
type beside struct {
	budget int
	bytes  int       // sent in turns of the config lane and not acknowledged, and what is expected of such turns
	mean   int       // bytes of a turn in the config lane, of late
	last   time.Time // when endpoints were marked last
}

// open says whether another stream may have a turn in the config lane.
func (b *beside) open(now time.Time) bool {
	return b.bytes < b.budget || now.Sub(b.last) > calm
}

// expect counts a turn that begins as what turns were of late.
func (q *Queue[S]) expect(s *entry[S]) { q.count(s, max(s.owing, q.beside.mean)) }

// weigh puts what a turn sent in the place of what was expected.
func (q *Queue[S]) weigh(s *entry[S], bytes int) {
	if s.trying {
		q.beside.mean += (bytes - q.beside.mean) / 8
		q.count(s, s.owing)
	}
}

// lighten is called when a stream owes less.
func (q *Queue[S]) lighten(s *entry[S]) {
	if s.trying && !s.granted {
		q.count(s, s.owing)
	}
}

func (q *Queue[S]) count(s *entry[S], bytes int) {
	q.beside.bytes += bytes - s.wide
	s.wide = bytes
}
