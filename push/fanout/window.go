package fanout

import "time"

// concurrencyWindow bounds the number of streams to which configuration is written at a time while endpoints change. A
// stream that is being sent a large route configuration gets its endpoints afterwards. Sends to many streams fill this
// process's run queue, and every step of an endpoint's way, from the store to the socket, waits there behind the
// goroutines that write. So a namespace whose routes are edited without end would delay the endpoints of all others.
//
// Therefore the window follows the run queue: it shrinks while goroutines wait for a processor, and grows while they do
// not. While no endpoints change, configuration goes to as many streams as the budget permits. A write that takes
// longer than longWay waits for the client, not for this process. If even the smallest window is too wide, because
// clients are fast and this process is busy, bytes are paced.
type concurrencyWindow[S comparable] struct {
	off   bool // never limits, to measure its effect
	size  int
	rest  time.Time // end of the pause between turns; zero: no pause
	last  time.Time // when endpoints were last marked
	slots slots[S]  // the streams to which configuration is being written
}

// Bounds of the window, and of the waits of goroutines: the wait of nine in ten. An endpoint's way has about fifteen
// such waits.
const (
	firstWindow = 32
	leastWindow = 1
	longWait    = 2 * time.Millisecond
	shortWait   = time.Millisecond
	longWay     = 10 * time.Millisecond
)

// leastRate is the rate at the smallest window, in bytes a second, so that every stream gets its configuration
// eventually. It is a tenth of the rate at which one processor encrypts and writes.
const leastRate = 64 << 20

// longCalm is the time without marked endpoints after which they no longer count as changing.
const longCalm = 10 * time.Second

// on reports whether endpoints are changing.
func (b *concurrencyWindow[S]) on(now time.Time) bool { return !b.off && now.Sub(b.last) <= longCalm }

// open reports whether another stream may have a turn in the lane of configuration.
func (b *concurrencyWindow[S]) open(now time.Time) bool {
	return !b.on(now) || b.slots.count() < b.size && !now.Before(b.rest)
}

// done moves a stream's slot to the sent ones after a turn with this many sent bytes. With the smallest window the next
// turn waits as long as these bytes need at leastRate.
func (b *concurrencyWindow[S]) done(s *entry[S], bytes int, now time.Time) {
	if b.slots.done(s, now) && b.size == leastWindow {
		b.rest = now.Add(time.Duration(float64(bytes) / leastRate * float64(time.Second)))
	}
}

// next returns when time alone will permit another turn.
func (b *concurrencyWindow[S]) next() (at time.Time, ok bool) {
	if at, ok = b.slots.next(longWay); ok && at.Before(b.rest) || !ok {
		at, ok = b.rest, !b.rest.IsZero()
	}
	return at, ok
}

// expire frees slots and ends the pause when their time is over.
func (b *concurrencyWindow[S]) expire(now time.Time) {
	b.slots.expire(now, longWay)
	if !now.Before(b.rest) {
		b.rest = time.Time{}
	}
}

// press adapts the window to how long goroutines waited for a processor recently.
func (b *concurrencyWindow[S]) press(wait time.Duration) {
	switch {
	case wait > longWait:
		b.size = max(leastWindow, b.size*3/4)
	case wait < shortWait:
		b.size = min(b.size+1+b.size/8, 1<<20)
	}
}
