package fanout

import (
	"container/list"
	"time"
)

// The kinds of slots; a stream has at most one of each.
const (
	windowSlot = iota
	rolloutSlot
	numSlots
)

// slots are the streams that have a turn of one kind, or have had it and have not acknowledged all yet.
type slots[S comparable] struct {
	kind int
	busy list.List // of *entry[S]: those that have their turn
	sent list.List // those that have had it: the one that has waited longest comes first
}

// count is how many there are.
func (l *slots[S]) count() int { return l.busy.Len() + l.sent.Len() }

// enter counts a stream whose turn begins.
func (l *slots[S]) enter(s *entry[S]) {
	l.leave(s)
	s.slots[l.kind], s.sentAt[l.kind] = l.busy.PushBack(s), time.Time{}
}

// leave is called when nothing is waited for any more.
func (l *slots[S]) leave(s *entry[S]) {
	switch at := s.slots[l.kind]; {
	case at == nil:
		return
	case s.sentAt[l.kind].IsZero():
		l.busy.Remove(at)
	default:
		l.sent.Remove(at)
	}
	s.slots[l.kind] = nil
}

// done is called when a turn is over; it says whether that was the one that it was entered for.
func (l *slots[S]) done(s *entry[S], now time.Time) bool {
	at := s.slots[l.kind]
	its := at != nil && s.sentAt[l.kind].IsZero()
	if its {
		l.busy.Remove(at)
		s.slots[l.kind], s.sentAt[l.kind] = l.sent.PushBack(s), now
	}
	return its
}

// next is when the first of them will have been waited for that long.
func (l *slots[S]) next(long time.Duration) (time.Time, bool) {
	if front := l.sent.Front(); front != nil {
		return front.Value.(*entry[S]).sentAt[l.kind].Add(long), true
	}
	return time.Time{}, false
}

// expire frees the slots of those that have been waited for that long.
func (l *slots[S]) expire(now time.Time, long time.Duration) {
	for at, ok := l.next(long); ok && !now.Before(at); at, ok = l.next(long) {
		l.leave(l.sent.Front().Value.(*entry[S]))
	}
}

// clear frees all.
func (l *slots[S]) clear() {
	for _, all := range []*list.List{&l.busy, &l.sent} {
		for e := all.Front(); e != nil; e = e.Next() {
			e.Value.(*entry[S]).slots[l.kind] = nil
		}
		all.Init()
	}
}
