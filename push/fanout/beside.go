package fanout

import (
	"container/list"
	"time"
)

// beside bounds to how many streams configuration is on its way while endpoints change. A stream that is being sent a
// great route takes its endpoints behind it, and sending to many at once fills this process's run queue: every step of
// an endpoint's way, from the store to the socket, waits there behind as many writers. A namespace whose routes are
// edited without end would so hold up the endpoints of the others. So the window follows the run queue: it closes while
// goroutines wait for a processor, and opens while they do not. Where no endpoints change, configuration goes to as
// many streams as the budget has.
type beside[S comparable] struct {
	window int
	last   time.Time // when endpoints were marked last
	slots  list.List // of *entry[S]: the streams that configuration is on its way to
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
	return b.slots.Len() < b.window || !b.on(now)
}

// enter counts a stream that has a turn in the config lane.
func (b *beside[S]) enter(s *entry[S]) {
	b.leave(s)
	s.slot, s.sentAt = b.slots.PushBack(s), time.Time{}
}

// leave is called when it has acknowledged everything, or has left.
func (b *beside[S]) leave(s *entry[S]) {
	if s.slot != nil {
		b.slots.Remove(s.slot)
		s.slot = nil
	}
}

// sent is called when a turn is over. What is on its way for longer than longWay waits for the client, not for this process.
func (b *beside[S]) sent(s *entry[S], now time.Time) {
	if s.slot != nil {
		s.sentAt = now
		b.slots.MoveToBack(s.slot)
	}
}

// oldest is the one whose turn has been over for longest; nil: all have their turn still.
func (b *beside[S]) oldest() *entry[S] {
	for e := b.slots.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*entry[S]); !s.sentAt.IsZero() {
			return s
		}
	}
	return nil
}

// next is when the first of them will have been on its way for long.
func (b *beside[S]) next() (time.Time, bool) {
	if s := b.oldest(); s != nil {
		return s.sentAt.Add(longWay), true
	}
	return time.Time{}, false
}

// expire frees the places of those that wait for their clients.
func (b *beside[S]) expire(now time.Time) {
	for s := b.oldest(); s != nil && !now.Before(s.sentAt.Add(longWay)); s = b.oldest() {
		b.leave(s)
	}
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
