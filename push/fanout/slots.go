package fanout

import (
	"container/list"
	"time"
)

// A slot is the permission to be one of a bounded number of streams. One kind of slots belongs to the concurrency
// window (window.go), and the other to the rollout (rollout.go). A stream has at most one slot of each kind.
const (
	windowSlot = iota
	rolloutSlot
	numSlots
)

// slots holds the streams that occupy a slot of one kind. A stream enters when its turn begins. It leaves when its
// client has acknowledged, or some time after its turn (expire).
type slots[S comparable] struct {
	kind int
	busy list.List // of *entry[S]: in their turn
	sent list.List // of *entry[S]: after their turn, the earliest end first
}

// count returns the number of occupied slots.
func (l *slots[S]) count() int { return l.busy.Len() + l.sent.Len() }

// enter occupies a slot for a stream whose turn begins.
func (l *slots[S]) enter(s *entry[S]) {
	l.leave(s)
	s.slots[l.kind], s.sentAt[l.kind] = l.busy.PushBack(s), time.Time{}
}

// leave frees a stream's slot.
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

// done moves a stream's slot from busy to sent after a turn. It reports whether there was such a slot in busy.
func (l *slots[S]) done(s *entry[S], now time.Time) bool {
	at := s.slots[l.kind]
	its := at != nil && s.sentAt[l.kind].IsZero()
	if its {
		l.busy.Remove(at)
		s.slots[l.kind], s.sentAt[l.kind] = l.sent.PushBack(s), now
	}
	return its
}

// next returns the time at which the oldest slot in sent has been there for the duration age. It returns false if sent
// is empty.
func (l *slots[S]) next(age time.Duration) (time.Time, bool) {
	if front := l.sent.Front(); front != nil {
		return front.Value.(*entry[S]).sentAt[l.kind].Add(age), true
	}
	return time.Time{}, false
}

// expire frees the slots that have been in sent for the duration age.
func (l *slots[S]) expire(now time.Time, age time.Duration) {
	for at, ok := l.next(age); ok && !now.Before(at); at, ok = l.next(age) {
		l.leave(l.sent.Front().Value.(*entry[S]))
	}
}

// clear frees all slots.
func (l *slots[S]) clear() {
	for _, all := range []*list.List{&l.busy, &l.sent} {
		for e := all.Front(); e != nil; e = e.Next() {
			e.Value.(*entry[S]).slots[l.kind] = nil
		}
		all.Init()
	}
}
