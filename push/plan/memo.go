package plan

import (
	"sync"
	"time"
)

// restFactor limits how often an answer is computed again. The pause after a computation is restFactor times as long as
// the computation. So computations use at most a quarter of one processor.
const restFactor = 3

// memo caches an answer about the whole plan until the plan changes. The cost of such an answer grows with the
// configuration, so one caller computes it for all waiting callers. The zero memo is ready for use by any goroutine.
type memo[T any] struct {
	mu        sync.Mutex
	answer    T
	edition   int64     // edition of the plan that the answer is about; 0 without an answer
	notBefore time.Time // earliest time of the next computation
}

// get returns the cached answer if it is about the given edition of the plan or a newer edition. If not, get waits
// until the pause is over, and calls find, which returns a new answer and its edition. Concurrent callers wait for one
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
