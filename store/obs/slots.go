package obs

import (
	"sync"
	"time"
)

// OtherValues is the label value of all values without a slot.
const OtherValues = "(others)"

// Slots bounds the values of a label that users choose, such as tenants. A value keeps its slot while it is used. If
// all slots are taken, a new value gets the slot that was unused for longest, provided that this time is Idle or more.
// Otherwise the new value counts as OtherValues. All exported fields are required. Slots is safe for concurrent use.
type Slots struct {
	Most int                // number of slots
	Idle time.Duration      // time without use after which a slot may be given to another value
	Free func(value string) // called with a value that loses its slot; Free must not use the Slots

	mu   sync.Mutex           // leaf mutex; guards the field below
	used map[string]time.Time // by value with a slot: time of the last use
}

// Of returns the label value under which to count a value at the time now. The result is the value itself, or
// OtherValues. Before a slot passes to another value, Of calls Free with the old value, so that the caller can delete
// the old value's metrics.
func (s *Slots) Of(value string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.used[value]; !known && len(s.used) >= s.Most {
		oldest, at := "", now
		for other, last := range s.used {
			if last.Before(at) {
				oldest, at = other, last
			}
		}
		if now.Sub(at) < s.Idle || at.Equal(now) {
			return OtherValues
		}
		delete(s.used, oldest)
		s.Free(oldest)
	}
	if s.used == nil {
		s.used = map[string]time.Time{}
	}
	s.used[value] = now
	return value
}
