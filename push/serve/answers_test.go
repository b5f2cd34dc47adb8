package serve

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/manifest"
)

// Two answers may wait to be sent on a proxy's stream; a third one is dropped, and counts no more for the identity.
func TestAnswersThatWaitAreFew(t *testing.T) {
	var x exchange
	over := 0
	for i := range maxAnswers + 1 {
		x.answer(&answer{late: time.NewTimer(time.Hour), done: func() { over++ }})
		if dropped := max(0, i+1-maxAnswers); over != dropped || len(x.answers) != i+1-dropped || len(x.answers) > 2 {
			t.Errorf("of %d answers %d wait, %d are over", i+1, len(x.answers), over)
		}
	}
}

// For an answer a client has four times the time that it has for a response. After that its connection is closed, and
// the answer counts no more for the identity.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestTimeToReadAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 40 * time.Second
		var over, hungUp atomic.Int32
		hooks := Hooks{Timeout: func(bool) {}}
		st := &stream{srv: &Server{cfg: Config{WriteTimeout: 10 * time.Second, Hooks: hooks}}, hangUp: func() error { hungUp.Add(1); return nil }}
		st.made("navarch.io/test", nil, func() { over.Add(1) })
		time.Sleep(patience - time.Nanosecond)
		if synctest.Wait(); over.Load()+hungUp.Load() != 0 {
			t.Error("it ends too soon")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); over.Load() != 1 || hungUp.Load() != 1 {
			t.Errorf("over %d times, hung up %d times", over.Load(), hungUp.Load())
		}
	})
}

// An address may have exactly 16,384 streams on plain text.
// Promise: security-connections.md#what-such-a-client-can-still-do
func TestEdgeOfStreamsOfASource(t *testing.T) {
	s, _ := start(t, Config{Planner: newPlanner()})
	for i := range 16385 {
		if _, err := s.cfg.Sources.Enter(budget.Holder{Identity: "plain text"}, func(error) {}); (err == nil) != (i < 16384) {
			t.Fatalf("stream %d: %v", i+1, err)
		}
	}
}

// A stream keeps the newest sixteen refusals of its client, for debugging.
func TestRefusalsThatAreKept(t *testing.T) {
	x := exchange{proxy: &stillProxy{set: &manifest.Set{}}}
	for i := range 20 {
		x.keep(Refusal{Name: strconv.Itoa(i)})
	}
	if n := len(x.refusals); n != 16 || x.refusals[0].Name != "4" || x.refusals[15].Name != "19" {
		t.Errorf("%d are kept: %+v", n, x.refusals)
	}
}
