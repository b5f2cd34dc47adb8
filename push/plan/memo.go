package plan

import (
	"sync"
	"time"
)

// restFactor is the pause before an answer is computed again, as a multiple of the duration of the last computation. It
// bounds the use to a quarter of a processor, for any number of callers and changes of the plan.
const restFactor = 3

// memo caches an answer about the whole plan until the plan changes. The cost of such an answer grows with the
// configuration, so one caller computes it for all waiting callers. The zero memo is ready for use by any goroutine.
type memo[T any] struct {
	mu        sync.Mutex
	answer    T
	edition   int64     // of the plan that the answer is about; 0 without an answer
	notBefore time.Time // earliest time of the next computation
}

// get returns the cached answer if it is about the given edition of the plan or a newer one. Otherwise it waits for the
// pause, and calls find, which computes an answer and returns the answer's edition. Concurrent callers wait for one
// computation.
func (m *memo[T]) get(edition int64, find func() (T, int64)) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.edition == 0 || m.edition < edition {
		time.Sleep(time.Until(m.notBefore))
		began := time.Now()
		m.answer, m.edition = find()
		m.notBefore = time.Now().Add(restFactor * time.Since(began))
	}
	return m.answer
}
