package fanout

import "time"

// concurrencyWindow bounds to how many streams configuration is on its way while endpoints change. A stream that is being sent a
// large route configuration gets its endpoints after that, and sending to many at once fills this process's run queue: every step of
// an endpoint's way, from the store to the socket, waits there for as many goroutines that write. So a namespace whose routes are
// edited without end would hold up the endpoints of the others. Therefore the window follows the run queue: it closes while
// goroutines wait for a processor, and opens while they do not. Where no endpoints change, configuration goes to as
// many streams as the budget has. What is on its way for longer than longWay waits for the client, not for this process.
// Where even the smallest window is too wide, since clients are as quick as this process is busy, bytes are paced.
type concurrencyWindow[S comparable] struct {
	off   bool // it never closes: to measure what it is worth
	size  int
	rest  time.Time // until when nobody has a turn; zero: somebody may
	last  time.Time // when endpoints were marked last
	slots slots[S]  // the streams that configuration is on its way to
}

// The bounds of the window and of how long goroutines may wait: what nine in ten waited less than. An endpoint's way has some
// fifteen such waits.
const (
	firstWindow = 32
	leastWindow = 1
	longWait    = 2 * time.Millisecond
	shortWait   = time.Millisecond
	longWay     = 10 * time.Millisecond
)

// leastRate is how many bytes a second are sent at the smallest window, so that everybody has its configuration some time: a
// tenth of what one processor encrypts and writes.
const leastRate = 64 << 20

// longCalm is how long no endpoints were marked before they no longer count as changing.
const longCalm = 10 * time.Second

// on says whether endpoints are changing.
func (b *concurrencyWindow[S]) on(now time.Time) bool { return !b.off && now.Sub(b.last) <= longCalm }

// open says whether another stream may have a turn in the config lane, where so many are taking one.
func (b *concurrencyWindow[S]) open(now time.Time) bool {
	return !b.on(now) || b.slots.count() < b.size && !now.Before(b.rest)
}

// done is called when a stream's turn is over, with how many bytes it was sent.
func (b *concurrencyWindow[S]) done(s *entry[S], bytes int, now time.Time) {
	if b.slots.done(s, now) && b.size == leastWindow {
		b.rest = now.Add(time.Duration(float64(bytes) / leastRate * float64(time.Second)))
	}
}

// next is when time alone will let another have its turn.
func (b *concurrencyWindow[S]) next() (at time.Time, ok bool) {
	if at, ok = b.slots.next(longWay); ok && at.Before(b.rest) || !ok {
		at, ok = b.rest, !b.rest.IsZero()
	}
	return at, ok
}

// expire ends what is over.
func (b *concurrencyWindow[S]) expire(now time.Time) {
	b.slots.expire(now, longWay)
	if !now.Before(b.rest) {
		b.rest = time.Time{}
	}
}

// press takes how long goroutines waited for a processor of late.
func (b *concurrencyWindow[S]) press(wait time.Duration) {
	switch {
	case wait > longWait:
		b.size = max(leastWindow, b.size*3/4)
	case wait < shortWait:
		b.size = min(b.size+1+b.size/8, 1<<20)
	}
}
