//go:build !race

package place

import (
	"math/rand/v2"
	"testing"
	"time"
)

// run steps a Drain as its loop does, for a time, and returns the times of closed streams. input is called at each
// step, with the number of closed streams so far.
func run(d *Drain, from time.Time, long time.Duration, input func(now time.Time, closed int) DrainInput) (at []time.Time) {
	for now := from; now.Sub(from) < long; {
		in := input(now, len(at))
		in.Now = now
		closing, again := d.Step(in)
		if closing {
			at = append(at, now)
		}
		now = now.Add(again)
	}
	return at
}

// most returns the largest number of times within one second.
func most(at []time.Time) (n int) {
	for i := range at {
		for j := i; j < len(at) && at[j].Sub(at[i]) < time.Second; j++ {
			n = max(n, j-i+1)
		}
	}
	return n
}

// Streams above 1.25 of the share for a minute are closed, at most 10 and at most 2 % of them in any second, down to
// 1.1 of it.
func TestDrainPace(t *testing.T) {
	for streams, limit := range map[int]int{30: 1, 140: 2, 199: 3, 300: 6, 3000: 10} {
		for _, jitter := range []float64{0, .5, 1, -1} {
			d, began, random := NewDrain(DrainConfig{}), time.Unix(1e6, 0), rand.New(rand.NewPCG(1, 2))
			share := float64(streams) / 1.5
			at := run(d, began, 20*time.Minute, func(_ time.Time, closed int) DrainInput {
				in := DrainInput{Streams: streams - closed, Share: share, Peers: 2, Movable: streams - closed, LeaderAge: time.Hour, Random: jitter}
				if jitter < 0 {
					in.Random = random.Float64()
				}
				return in
			})
			if len(at) == 0 {
				t.Fatalf("%d streams: none was closed", streams)
			}
			if first := at[0].Sub(began); first < time.Minute || first > time.Minute+drainEvery {
				t.Errorf("%d streams: the first was closed after %v", streams, first)
			}
			if here := float64(streams - len(at)); most(at) > limit || here > 1.1*share || here < 1.1*share-1 {
				t.Errorf("%d streams, jitter %v: %.0f are left of a share of %.0f, at most %d in a second, want %d", streams, jitter, here, share, most(at), limit)
			}
		}
	}
	// And nearly as many as may be.
	good := DrainInput{Streams: 10_000, Share: 2000, Peers: 1, Movable: 10_000, LeaderAge: time.Hour, Random: .5}
	at := run(NewDrain(DrainConfig{}), time.Unix(1e6, 0), 160*time.Second, func(time.Time, int) DrainInput { return good })
	if n := len(at); n < 750 || n > 1000 {
		t.Errorf("%d closed in 100 s", n)
	}
	// A caller before its time receives the remaining wait.
	d, now := NewDrain(DrainConfig{After: time.Second}), time.Unix(1e6, 0)
	at = run(d, now, 2*time.Second, func(at time.Time, _ int) DrainInput { now = at; return good })
	in := good
	if in.Now = now.Add(time.Millisecond); len(at) == 0 {
		t.Error("none was closed")
	} else if closing, again := d.Step(in); closing || again > 150*time.Millisecond {
		t.Errorf("a millisecond later: %v, again after %v", closing, again)
	}
}

// Nothing is closed where that is wrong, from one moment to the next, and nothing is saved up for later meanwhile.
func TestDrainHoldsStill(t *testing.T) {
	good := DrainInput{Streams: 1000, Share: 500, Peers: 2, Movable: 1000, LeaderAge: time.Hour, Random: .5}
	for name, change := range map[string]func(*DrainInput){
		"a storm":        func(in *DrainInput) { in.Storm = true },
		"two versions":   func(in *DrainInput) { in.Mixed = true },
		"no leader":      func(in *DrainInput) { in.LeaderAge = 0 },
		"a new leader":   func(in *DrainInput) { in.LeaderAge = 29 * time.Second },
		"no share":       func(in *DrainInput) { in.Share = 0 },
		"nobody else":    func(in *DrainInput) { in.Peers = 0 },
		"all follow":     func(in *DrainInput) { in.Movable = 0 },
		"even":           func(in *DrainInput) { in.Share = 950 },
		"a few too many": func(in *DrainInput) { in.Streams, in.Share = 15, 8 },
	} {
		bad := good
		change(&bad)
		d, began := NewDrain(DrainConfig{}), time.Unix(1e6, 0)
		// Two minutes with the condition, two without; short conditions come and go.
		long := 4 * time.Minute
		if bad.Share == good.Share && bad.Peers == good.Peers {
			long += time.Minute
		}
		fine := func(now time.Time) bool {
			after := now.Sub(began)
			return after >= 2*time.Minute && (after < 4*time.Minute || after/(700*time.Millisecond)%2 == 0)
		}
		at := run(d, began, long, func(now time.Time, _ int) DrainInput {
			if fine(now) {
				return good
			}
			return bad
		})
		in := 0
		for _, a := range at {
			if !fine(a) {
				t.Errorf("%s: one was closed after %v", name, a.Sub(began))
				break
			}
			if a.Sub(began) < 4*time.Minute {
				in++
			}
		}
		if in < 100 || most(at) > 10 {
			t.Errorf("%s: %d closed when it was over, at most %d in a second", name, in, most(at))
		}
		if n := len(at) - in; long > 4*time.Minute && n < 100 {
			t.Errorf("%s: %d closed in a minute in which it came and went", name, n)
		}
	}
}

// A replica that leaves informs the others first, sends its streams away evenly, and closes the rest before the end of
// the grace.
func TestLeaving(t *testing.T) {
	began := time.Unix(1e6, 0)
	leave := func(streams int, grace time.Duration, in func(after time.Duration) LeavingInput) (left int, first, end time.Duration, greatest int) {
		l := &Leaving{Began: began, Grace: grace}
		first, left = -1, streams
		for after := time.Duration(0); after < 2*grace; after += l.StepEvery() {
			i := in(after)
			i.Now, i.Streams = began.Add(after), left
			s := l.Step(i)
			if s.GoAway {
				return left, first, after, greatest
			}
			if s.Close > 0 && first < 0 {
				first = after
			}
			left, greatest = left-s.Close, max(greatest, s.Close)
		}
		t.Fatal("does not end")
		return
	}
	handedOver := func(after time.Duration) LeavingInput {
		return LeavingInput{Peers: 2, HandedOver: after >= time.Second}
	}
	if left, first, end, greatest := leave(6000, 30*time.Second, handedOver); left > 120 || first < time.Second || first > 2*time.Second || end > 28*time.Second || greatest > 60 {
		t.Errorf("left %d, first at %v, end at %v, at most %d at once", left, first, end, greatest)
	}
	never := func(time.Duration) LeavingInput { return LeavingInput{Peers: 2} }
	if left, first, _, _ := leave(1000, 30*time.Second, never); left > 20 || first < 3*time.Second || first > 4*time.Second {
		t.Errorf("nobody heard it: left %d, first at %v", left, first)
	}
	if left, _, end, _ := leave(1000, 30*time.Second, func(time.Duration) LeavingInput { return LeavingInput{} }); left != 1000 || end != 0 {
		t.Errorf("with nobody to take over: left %d, end at %v", left, end)
	}
	if _, _, end, _ := leave(0, 30*time.Second, handedOver); end != 0 {
		t.Errorf("without streams: end at %v", end)
	}
	led := func(by time.Duration) func(after time.Duration) LeavingInput {
		return func(after time.Duration) LeavingInput { return LeavingInput{Led: true, HandedOver: after >= by} }
	}
	if left, _, end, _ := leave(1000, 30*time.Second, led(time.Second)); left != 1000 || end != time.Second {
		t.Errorf("with a leader and nobody to take over: left %d, end at %v, want as soon as the ring is without it", left, end)
	}
	if _, _, end, _ := leave(0, 30*time.Second, led(time.Hour)); end != 3*time.Second {
		t.Errorf("without streams, under a leader that writes nothing: end at %v", end)
	}
	if _, _, end, _ := leave(3, 5*time.Second, handedOver); end > 5*time.Second {
		t.Errorf("a short grace: end at %v", end)
	}
}

func TestSignals(t *testing.T) {
	s := SignalsOf(Measures{Streams: 150, Misplaced: 5, Numbers: Numbers{Ready: 3, Streams: 300, Share: 100}, PushLag: time.Second / 2, Admission: AdmissionState{Delay: 2 * time.Second}})
	if want := (Signals{Proxies: 150, Fleet: 100, Imbalance: 1.5, Misplaced: 5, PushLag: .5, QueueDelay: 2}); s != want {
		t.Errorf("%+v", s)
	}
	if s := SignalsOf(Measures{Streams: 7}); s.Imbalance != 1 || s.Fleet != 0 {
		t.Errorf("alone: %+v", s)
	}
}
