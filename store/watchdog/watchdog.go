// Package watchdog watches calls that must not block: callbacks of loops on which others wait. A loop that hangs in a
// callback would otherwise seem idle.
//
// Owns: nothing. Reads: nothing of ours but store/obs. Never: ends a call, which may still return.
package watchdog

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/store/obs"
)

// Limit bounds the duration of a call. A call that does not block takes microseconds. While thousands of proxies join
// at once, a goroutine may wait a second for a processor.
const Limit = 5 * time.Second

// testLimit replaces Limit in test binaries, which a late call ends: a busy machine may delay tests for seconds.
const testLimit = time.Minute

// caught receives late calls in tests, after Limit; nil: a late call ends the test binary.
var caught atomic.Pointer[func(call string)]

// Caught collects late calls until the test ends, for tests that cause them on purpose. Without it a late call ends the
// test binary. calls returns the names of the late calls, in order.
func Caught(t testing.TB) (calls func() []string) {
	var mu sync.Mutex
	var all []string
	take := func(call string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, call)
	}
	caught.Store(&take)
	t.Cleanup(func() { caught.Store(nil) })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// Watchdog watches the calls of one goroutine, one at a time.
type Watchdog struct {
	call  string
	log   *slog.Logger
	test  bool
	timer *time.Timer // nil before the first call
}

// New returns a Watchdog. call is the name of its calls, one of a few. log nil: slog.Default().
func New(log *slog.Logger, call string) *Watchdog {
	if log == nil {
		log = slog.Default()
	}
	return &Watchdog{call: call, log: log, test: testing.Testing()}
}

// Call calls f. If f takes longer than Limit, Call logs an error and counts it (navarch_blocked_calls_total) while f
// still runs. In a test binary it panics after testLimit. The cost is that of setting and stopping a timer.
func (w *Watchdog) Call(f func()) {
	limit := Limit
	if w.test && caught.Load() == nil {
		limit = testLimit
	}
	if w.timer == nil { // created by the calling goroutine, whose clock it uses (testing/synctest)
		w.timer = time.AfterFunc(limit, w.late)
	} else {
		w.timer.Reset(limit)
	}
	defer w.timer.Stop()
	f()
}

func (w *Watchdog) late() {
	obs.BlockedCalls.WithLabelValues(w.call).Inc()
	if take := caught.Load(); take != nil {
		(*take)(w.call)
		return
	}
	if w.test {
		panic(fmt.Sprintf("%s must not block, and has not returned for %v", w.call, testLimit))
	}
	w.log.Error("a call that must not block has not returned; a loop of this process waits for it, and others for that", obs.KeyName, w.call,
		obs.KeyAtMost, Limit)
}
