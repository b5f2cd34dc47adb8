// Package watchdog watches calls that must not block: callbacks of loops that others wait for. A loop that hangs in one would otherwise only look
// idle.
//
// Owns: nothing.  Reads: nothing of ours but store/obs.  Never: ends a call, which may still return.
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

// Limit is how long a call may take. One that does not block takes microseconds; but while thousands of proxies join at once, a goroutine may wait
// for a processor for a second.
const Limit = 5 * time.Second

// testLimit is Limit in a test binary, which a late call ends: a machine may stand still for seconds under tests.
const testLimit = time.Minute

// caught takes calls that are late in a test, by Limit; nil: they end the test binary.
var caught atomic.Pointer[func(call string)]

// Caught has calls that are late gathered until the test ends, for tests in which some are on purpose: else they end the test binary. calls are
// their names, in order.
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

// Watchdog watches calls of one goroutine, one at a time.
type Watchdog struct {
	call  string
	log   *slog.Logger
	test  bool
	timer *time.Timer // nil: there was no call yet
}

// New watches what is called by a name, one of a few. log nil: slog.Default().
func New(log *slog.Logger, call string) *Watchdog {
	if log == nil {
		log = slog.Default()
	}
	return &Watchdog{call: call, log: log, test: testing.Testing()}
}

// Call calls f. Where that takes longer than Limit, it is an error in the log, and counted (navarch_blocked_calls_total), while f still runs; in
// a test binary it is a panic after testLimit. It costs setting and stopping a timer.
func (w *Watchdog) Call(f func()) {
	limit := Limit
	if w.test && caught.Load() == nil {
		limit = testLimit
	}
	if w.timer == nil { // here and not in New, so that it goes by the clock of the goroutine that calls (testing/synctest)
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
