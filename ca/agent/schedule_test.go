package agent

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func show(es []effect) string {
	out := ""
	for _, e := range es {
		switch e := e.(type) {
		case ask:
			out += fmt.Sprintf("ask by %s;", e.with)
		case wakeAt:
			out += fmt.Sprintf("wake +%s;", e.at.Sub(epoch))
		}
	}
	return out
}

func TestSchedule(t *testing.T) {
	s := &schedule{at: 0.5, jitter: 0.1, token: true}
	day := epoch.Add(24 * time.Hour)
	for i, c := range []struct {
		now    time.Duration
		random float64
		e      event
		want   string
	}{
		{0, 0, begin{}, "ask by token;"},
		{0, 0, due{}, ""}, // one at a time
		{0, 0.5, failed{}, "wake +375ms;"},
		{time.Second, 0.5, due{}, "ask by token;"},
		{time.Second, 0, failed{}, "wake +1.5s;"},
		{2 * time.Second, 0, due{}, "ask by token;"},
		{0, 0.5, issued{day}, "wake +12h0m0s;"},
		{12 * time.Hour, 0, due{}, "ask by certificate;"},
		{12 * time.Hour, 0, failed{}, "wake +12h0m0.25s;"},
		{12 * time.Hour, 0, due{}, "ask by token;"}, // the other credential
		{12 * time.Hour, 0, failed{}, "wake +12h0m0.5s;"},
		{12 * time.Hour, 0, due{}, "ask by certificate;"},
		{12 * time.Hour, 0, renew{}, ""}, // kept for later
		{12 * time.Hour, 0, issued{day.Add(12 * time.Hour)}, "ask by certificate;"},
		{12 * time.Hour, 1, issued{day.Add(12 * time.Hour)}, "wake +25h12m0s;"},
		{12 * time.Hour, 0, renew{}, "ask by certificate;"},
		{48 * time.Hour, 0, failed{}, "wake +48h0m0.25s;"},
		{48 * time.Hour, 0, due{}, "ask by token;"}, // expired
	} {
		if got := show(s.Step(epoch.Add(c.now), c.random, c.e)); got != c.want {
			t.Errorf("step %d (%T): %s, want %s", i, c.e, got, c.want)
		}
	}
}

// A renewal begins before the end of the certificate, however late and uncertain it is configured.
func TestRenewalPrecedesTheEnd(t *testing.T) {
	s := &schedule{at: 0.95, jitter: 0.5}
	if got := show(s.Step(epoch, 1, issued{epoch.Add(1000 * time.Hour)})); got != "wake +975h0m0s;" {
		t.Error(got)
	}
}

func TestWithoutATokenTheCertificateIsAllThereIs(t *testing.T) {
	s := &schedule{at: 0.5, jitter: 0.1}
	for range 3 {
		if got := show(s.Step(epoch, 0, due{})); got != "ask by certificate;" {
			t.Error(got)
		}
		s.Step(epoch, 0, failed{})
	}
}

// TestScheduleRandom: whatever fails, there is always a request under way or an alarm set, never two requests; pauses
// stay within bounds, and a certificate is never let run out for want of attempts.
func TestScheduleRandom(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &schedule{at: 0.5, jitter: 0.1, token: r.IntN(2) == 0}
		now, alarm, asking := epoch, time.Time{}, false
		var notAfter time.Time
		step := func(e event) {
			for _, f := range s.Step(now, r.Float64(), e) {
				switch f := f.(type) {
				case ask:
					if asking {
						t.Fatalf("seed %d: two requests at once", seed)
					}
					asking, alarm = true, time.Time{}
				case wakeAt:
					alarm = f.at
					if d := f.at.Sub(now); d <= 0 || d > 100*24*time.Hour {
						t.Fatalf("seed %d: alarm in %s", seed, d)
					}
					if _, ok := e.(failed); ok && (f.at.Sub(now) > retryMaxHeld || notAfter.After(now.Add(time.Second)) && f.at.After(notAfter)) {
						t.Fatalf("seed %d: pause of %s with %s left", seed, f.at.Sub(now), notAfter.Sub(now))
					}
				}
			}
			if !asking && alarm.IsZero() {
				t.Fatalf("seed %d: neither asking nor an alarm after %T", seed, e)
			}
		}
		step(begin{})
		for range 500 {
			switch {
			case r.IntN(8) == 0:
				step(renew{})
			case asking:
				now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
				asking = false
				if r.IntN(3) == 0 {
					notAfter = now.Add(time.Duration(1+r.IntN(100000)) * time.Second)
					step(issued{notAfter})
				} else {
					step(failed{})
				}
			default:
				now = alarm
				step(due{})
			}
		}
	}
}
