package obs

import (
	"sync"
	"time"
)

// OtherValues is the label value under which all values without a slot of Slots are counted.
const OtherValues = "(others)"

// Slots bounds the number of values of a metric's label. Users choose the values, such as tenants. A value keeps its
// slot while it is used. If all slots are taken, a new value may replace the value whose last use is oldest, if that
// use is at least Idle ago. If no value can be replaced, the new value counts as OtherValues. All exported fields are
// required. Slots is safe for concurrent use.
type Slots struct {
	Most int                // largest number of values with a slot
	Idle time.Duration      // time without use after which a slot may be given to another value
	Free func(value string) // called with a value that loses its slot; Free must not use the Slots

	mu   sync.Mutex           // guards the field below
	used map[string]time.Time // from each value with a slot to the time of its last use
}

// Of returns the label value for a value that is used at the time now. The result is the value itself, or OtherValues.
// Before a slot passes to another value, Of calls Free with the old value, so that the caller can delete the old
// value's metrics.
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
