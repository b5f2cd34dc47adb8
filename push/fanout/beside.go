package fanout

import "time"

// beside bounds to how many streams configuration is on its way while endpoints change. A stream that is being sent a
// great route takes its endpoints behind it, and sending to many at once fills this process's run queue: every step of
// an endpoint's way, from the store to the socket, waits there behind as many writers. A namespace whose routes are
// edited without end would so hold up the endpoints of the others. So the window follows the run queue: it closes while
// goroutines wait for a processor, and opens while they do not. Where no endpoints change, configuration goes to as
// many streams as the budget has. What is on its way for longer than longWay waits for the client, not for this process.
type beside[S comparable] struct {
	window int
	last   time.Time // when endpoints were marked last
	slots  slots[S]  // the streams that configuration is on its way to
}

// The bounds of the window and of how long goroutines may wait: what nine in ten waited less than. An endpoint's way has some
// fifteen such waits.
const (
	firstWindow = 32
	leastWindow = 4
	longWait    = 2 * time.Millisecond
	shortWait   = time.Millisecond
	longWay     = 10 * time.Millisecond
)

// longCalm is how long no endpoints were marked before they no longer count as changing.
const longCalm = 10 * time.Second

// on says whether endpoints are changing.
func (b *beside[S]) on(now time.Time) bool { return now.Sub(b.last) <= longCalm }

// open says whether another stream may have a turn in the config lane, where so many are taking one.
func (b *beside[S]) open(now time.Time) bool {
	return b.slots.count() < b.window || !b.on(now)
}

// press takes how long goroutines waited for a processor of late.
func (b *beside[S]) press(wait time.Duration) {
	switch {
	case wait > longWait:
		b.window = max(leastWindow, b.window*3/4)
	case wait < shortWait:
		b.window = min(b.window+1+b.window/8, 1<<20)
	}
}
