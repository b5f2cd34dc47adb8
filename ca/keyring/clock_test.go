package keyring_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/clock"
)

// judged is a clock that a test judges.
type judged struct {
	off   atomic.Bool
	sure  func() time.Time
	word  clock.Word
	heard chan clock.Word // nil: not read
}

var errOff = errors.New("the clock is off, the test says")

func (j *judged) Off() error {
	if j.off.Load() {
		return errOff
	}
	return nil
}

func (j *judged) Sure() (time.Time, error) { return j.sure(), j.Off() }

func (j *judged) Word() clock.Word { return j.word }

func (j *judged) Heard(w clock.Word, roundTrip time.Duration) {
	if j.heard != nil && roundTrip > 0 {
		j.heard <- w
	}
}

func (j *judged) Compared() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// fast returns a replica whose clock is 25 hours ahead of the others'.
func (w *harness) fast(judge keyring.Clock, more ...func(*keyring.Config)) *replica {
	return w.replica(append(more, func(c *keyring.Config) {
		c.Now, c.Clock = func() time.Time { return w.now().Add(25 * time.Hour) }, judge
	})...)
}

// A replica that knows that its clock is off does not treat valid leaves as ended: the rotation waits for their
// holders, the journal retains them, and no allowance is recorded with its time. It refuses all requested changes, with
// the reason.
// Promise: security-ca.md#clocks
func TestClockThatIsOff(t *testing.T) {
	w := newHarness(t)
	one := w.replica(func(c *keyring.Config) { c.Leads = func() bool { return false } }) // so the other alone would end things
	first := w.replica()
	first.settle()
	one.settle()
	leaf := one.mustLeaf("holder")
	if err := first.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	first.stop()
	var ahead atomic.Int64 // its certain time is its own time
	ahead.Store(int64(25 * time.Hour))
	judge := &judged{sure: func() time.Time { return w.now().Add(time.Duration(ahead.Load())) }}
	judge.off.Store(true)
	fast := w.fast(judge, allowed(t.TempDir(), 20))
	wantStatuses(t, fast.settle(), keyring.Active, keyring.Prepared)
	if n := journal(t, w); n == 0 {
		t.Error("the journal was pruned")
	}
	if n := len(w.blobs("allowances/")); n != 0 {
		t.Errorf("%d allowances are recorded by its time", n)
	}
	for what, err := range map[string]error{
		"rotate": fast.Rotate(t.Context(), true), "abort": fast.Abort(t.Context()),
		"revoke": func() error { _, err := fast.Revoke(t.Context(), []string{leaf.Serial}, nil); return err }(),
		"sign":   fast.ClockOff(),
	} {
		if !errors.Is(err, errOff) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !strings.Contains(w.logs.String(), errOff.Error()) {
		t.Error("the log does not say it")
	}
	wantStatuses(t, one.settle(), keyring.Active, keyring.Prepared)
	if report := one.settle(); len(report.Waiting) != 1 {
		t.Errorf("waits for %v", report.Waiting)
	}
	ahead.Store(0)
	judge.off.Store(false) // and by its own clock the leaf has not ended: it was set right
	wantStatuses(t, fast.settle(), keyring.Active, keyring.Prepared)
	if _, err := fast.Revoke(t.Context(), []string{leaf.Serial}, nil); err != nil {
		t.Error(err)
	}
}

// An expiry by a clock that may be wrong does not count: rotations and the journal use the time that is certain.
// Promise: security-ca.md#clocks
func TestSureTimeEndsThings(t *testing.T) {
	w := newHarness(t)
	first := w.replica()
	first.settle()
	first.mustLeaf("holder")
	if err := first.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	first.stop()
	var late atomic.Int64
	fast := w.fast(&judged{sure: func() time.Time { return w.now().Add(time.Duration(late.Load())) }})
	wantStatuses(t, fast.settle(), keyring.Active, keyring.Prepared)
	if n := journal(t, w); n == 0 {
		t.Error("the journal was pruned")
	}
	late.Store(int64(25 * time.Hour))
	fast.settle()
	wantStatuses(t, fast.settle(), keyring.Retired, keyring.Active)
	if n := journal(t, w); n != 0 {
		t.Errorf("%d parts of the journal are there", n)
	}
}

// journal counts the parts of the journal.
func journal(t *testing.T, w *harness) int {
	t.Helper()
	blobs, _, err := w.Store.Blobs(t.Context(), "certificates/", 0)
	if err != nil {
		t.Fatal(err)
	}
	return len(blobs)
}

// Peers return their time with their memory: so a process is judged even if its time in etcd is late.
func TestPeersSayTheirTime(t *testing.T) {
	w := newHarness(t)
	at := w.now().Add(time.Hour).Round(0)
	other := w.replica(func(c *keyring.Config) { c.Clock = &judged{sure: w.now, word: clock.Word{Process: "other", Now: at}} })
	other.settle()
	mine := &judged{sure: w.now, heard: make(chan clock.Word, 100)}
	one := w.replica(asks(other.listen()), func(c *keyring.Config) { c.Clock = mine })
	one.settle()
	if got := <-mine.heard; got.Process != "other" || !got.Now.Equal(at) {
		t.Errorf("heard %+v", got)
	}
}

// A replica whose clock is off does not create the first root: the root would begin and end at the wrong time for its
// whole life.
func TestClockThatIsOffMakesNoRoot(t *testing.T) {
	w := newHarness(t)
	judge := &judged{sure: w.now}
	judge.off.Store(true)
	r := w.fast(judge)
	if report := r.settle(); len(report.Epochs) != 0 || !strings.Contains(report.Sealed, errOff.Error()) || len(w.blobs("keys/")) != 0 {
		t.Errorf("by a clock that is off: %+v", report)
	}
	judge.off.Store(false)
	wantStatuses(t, r.settle(), keyring.Active)
}

// Nor does it record an allowance of renewals, whose times would be wrong.
func TestClockThatIsOffHasNoAllowance(t *testing.T) {
	w := newHarness(t)
	first := w.replica()
	first.settle()
	first.stop()
	judge := &judged{sure: w.now}
	judge.off.Store(true)
	r := w.replica(allowed(t.TempDir(), 20), func(c *keyring.Config) { c.Clock = judge })
	r.settle()
	if n := r.Stats().Allowance; n != 0 {
		t.Errorf("an allowance of %d by a clock that is off", n)
	}
	judge.off.Store(false)
	r.settle()
	if n := r.Stats().Allowance; n != 20 {
		t.Errorf("an allowance of %d when the clock is right", n)
	}
}
