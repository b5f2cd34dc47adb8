package plan

import (
	"sync"
	"time"
)

// rests is how many times as long as an answer took to make its next one is put off: together answers take a quarter of a processor at most, however many ask and however often the
// plan changes.
const rests = 3

// kept is an answer about everything that is planned, which costs in proportion to the configuration. One caller makes it for all that wait for it, and it is kept until the plan
// changes.
// The zero kept is ready for use, by any goroutine.
type kept[T any] struct {
	mu      sync.Mutex
	answer  T
	edition int64     // of the plan, that the answer is of; 0: there is none
	rested  time.Time // before which no other one is made
}

// get is the answer about the plan as it is, or was since edition, which is that of now; find makes it, and says of which edition it is.
func (k *kept[T]) get(edition int64, find func() (T, int64)) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.edition == 0 || k.edition < edition {
		time.Sleep(time.Until(k.rested))
		began := time.Now()
		k.answer, k.edition = find()
		k.rested = time.Now().Add(rests * time.Since(began))
	}
	return k.answer
}
