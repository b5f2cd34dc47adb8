// Package watchdog reports calls that block although they must not. An example is a callback in a loop for which other
// goroutines wait. Without a report, a loop that hangs in a callback would seem idle.
//
// Owns: nothing. Reads: its arguments. Never: ends a call, which may still return.
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

// Limit is the duration after which a call is reported as late. The limit is long because a goroutine may wait a second
// for a processor while thousands of proxies join at once.
const Limit = 5 * time.Second

// testLimit replaces Limit in test binaries without Caught. A late call ends such a binary, and a busy machine may
// delay tests for seconds.
const testLimit = time.Minute

// caught is called with each call in a test that is late (Limit). If it is nil, a late call ends the test binary.
var caught atomic.Pointer[func(call string)]

// Caught collects late calls of all Watchdogs until the test ends, for tests that cause late calls on purpose. Without
// Caught, a late call in a test ends the test binary. The returned function returns the names of the late calls so far,
// in order, or nil if no call was late. The caller owns the slice. Tests that call Caught must not run in parallel.
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

// Watchdog reports late calls of one goroutine. It is not safe for concurrent use.
type Watchdog struct {
	call  string
	log   *slog.Logger
	test  bool
	timer *time.Timer // nil before the first call
}

// New returns a Watchdog. The parameter call names its calls in logs, and is the value of a metric label, so a process
// must use few names. A nil log stands for slog.Default().
func New(log *slog.Logger, call string) *Watchdog {
	if log == nil {
		log = slog.Default()
	}
	return &Watchdog{call: call, log: log, test: testing.Testing()}
}

// Call calls f and returns when f returns. If f takes longer than Limit, an error is logged and counted
// (navarch_blocked_calls_total) while f still runs. With Caught, the call is counted and collected instead. In a test
// binary without Caught, the limit is one minute. A longer call then panics in another goroutine, which ends the
// binary. Call costs as much as setting and stopping a timer.
func (w *Watchdog) Call(f func()) {
	limit := Limit
	if w.test && caught.Load() == nil {
		limit = testLimit
	}
	if w.timer == nil { // created here, so that the timer uses the clock of the calling goroutine (testing/synctest)
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
	w.log.Error("a call that must not block has not returned: the calling loop and its dependants are blocked", obs.KeyName, w.call,
		obs.KeyAtMost, Limit)
}
