package fanout

import (
	"container/list"
	"time"
)

// Which slots a stream has one of.
const (
	besideSlot = iota
	trialSlot
	numSlots
)

// slots are the streams that have had their turn for something, or have it, and are waited for. Those that have it still come
// last, or were never moved; of the others the one that has waited longest comes first.
type slots[S comparable] struct {
	list list.List // of *entry[S]
	kind int
}

// Len is how many there are.
func (l *slots[S]) Len() int { return l.list.Len() }

// enter counts a stream whose turn begins.
func (l *slots[S]) enter(s *entry[S]) {
	l.leave(s)
	s.slots[l.kind], s.sentAt[l.kind] = l.list.PushBack(s), time.Time{}
}

// leave is called when nothing is waited for any more; it says whether the stream had a slot.
func (l *slots[S]) leave(s *entry[S]) bool {
	had := s.slots[l.kind] != nil
	if had {
		l.list.Remove(s.slots[l.kind])
		s.slots[l.kind] = nil
	}
	return had
}

// sent is called when a turn is over; it says whether that was the one that it was entered for.
func (l *slots[S]) sent(s *entry[S], now time.Time) bool {
	its := s.slots[l.kind] != nil && s.sentAt[l.kind].IsZero()
	if its {
		s.sentAt[l.kind] = now
		l.list.MoveToBack(s.slots[l.kind])
	}
	return its
}

// oldest is the one whose turn has been over for longest; nil: all have their turn still.
func (l *slots[S]) oldest() *entry[S] {
	for e := l.list.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*entry[S]); !s.sentAt[l.kind].IsZero() {
			return s
		}
	}
	return nil
}

// next is when the first of them will have been waited for that long.
func (l *slots[S]) next(long time.Duration) (time.Time, bool) {
	if s := l.oldest(); s != nil {
		return s.sentAt[l.kind].Add(long), true
	}
	return time.Time{}, false
}

// expire frees the slots of those that have been waited for that long.
func (l *slots[S]) expire(now time.Time, long time.Duration) {
	for s := l.oldest(); s != nil && !now.Before(s.sentAt[l.kind].Add(long)); s = l.oldest() {
		l.leave(s)
	}
}

// clear frees all.
func (l *slots[S]) clear() {
	for e := l.list.Front(); e != nil; e = e.Next() {
		e.Value.(*entry[S]).slots[l.kind] = nil
	}
	l.list.Init()
}
