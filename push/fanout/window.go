package fanout

import "time"

// concurrencyWindow bounds the number of streams to which configuration is written at a time while endpoints change.
// Writes to many streams fill the run queue of this process (goroutines that wait for a processor). Each step of an
// endpoint's way from the store to the socket waits in the run queue behind the goroutines that write. So without a
// bound, a namespace whose routes are edited all the time would delay the endpoints of all other namespaces.
//
// The window shrinks while goroutines wait for a processor, and grows while they do not. While no endpoints change,
// configuration is written to as many streams as the budget permits. If a client has not acknowledged a write after
// longWay, the write waits for the client and not for this process. So the stream no longer counts. At the smallest
// window, the rate of bytes is limited too (leastRate). The reason is that one stream may be too much, if its client is
// fast and this process is busy.
type concurrencyWindow[S comparable] struct {
	off   bool // the window never limits, so that its effect can be measured
	size  int
	rest  time.Time // end of the present pause between two turns; zero: no pause
	last  time.Time // time at which endpoints were last marked
	slots slots[S]  // the streams to which configuration is being written
}

// firstWindow and leastWindow are the initial and the smallest size. longWait and shortWait are compared with the 90th
// percentile of goroutines' waits for a processor. An endpoint waits about fifteen times between store and socket.
// longWay is the time after the end of a stream's turn at which the stream no longer counts.
const (
	firstWindow = 32
	leastWindow = 1
	longWait    = 2 * time.Millisecond // above it the window shrinks
	shortWait   = time.Millisecond     // below it the window grows
	longWay     = 10 * time.Millisecond
)

// leastRate is the rate in bytes per second at the smallest window. It is 1/10 of the rate at which one processor
// encrypts and writes.
const leastRate = 64 << 20

// longCalm is the time for which endpoints still count as changing after the last change of an endpoint.
const longCalm = 10 * time.Second

// on reports whether the window has an effect, because endpoints are changing. It is false if off is set.
func (b *concurrencyWindow[S]) on(now time.Time) bool { return !b.off && now.Sub(b.last) <= longCalm }

// open reports whether another stream may have a turn in the lane of configuration.
func (b *concurrencyWindow[S]) open(now time.Time) bool {
	return !b.on(now) || b.slots.count() < b.size && !now.Before(b.rest)
}

// done records the end of a stream's turn, in which bytes were sent. At the smallest window, the next turn waits as
// long as the bytes need at leastRate.
func (b *concurrencyWindow[S]) done(s *entry[S], bytes int, now time.Time) {
	if b.slots.done(s, now) && b.size == leastWindow {
		b.rest = now.Add(time.Duration(float64(bytes) / leastRate * float64(time.Second)))
	}
}

// next returns the time at which another turn is permitted even if there are no events. It returns false if no such
// time is known.
func (b *concurrencyWindow[S]) next() (at time.Time, ok bool) {
	if at, ok = b.slots.next(longWay); ok && at.Before(b.rest) || !ok {
		at, ok = b.rest, !b.rest.IsZero()
	}
	return at, ok
}

// expire frees the slots of streams whose turn ended at least longWay ago, and ends the pause when it is over.
func (b *concurrencyWindow[S]) expire(now time.Time) {
	b.slots.expire(now, longWay)
	if !now.Before(b.rest) {
		b.rest = time.Time{}
	}
}

// press adapts the size of the window to the parameter wait, the 90th percentile of goroutines' recent waits for a
// processor.
func (b *concurrencyWindow[S]) press(wait time.Duration) {
	switch {
	case wait > longWait:
		b.size = max(leastWindow, b.size*3/4)
	case wait < shortWait:
		b.size = min(b.size+1+b.size/8, 1<<20)
	}
}
