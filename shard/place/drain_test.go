package place

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Streams above 1.25 of the share for a minute are closed at 10 a second and 2 % a second at most, down to 1.1 of it.
func TestDrainPace(t *testing.T) {
	for _, streams := range []int{140, 300, 3000} {
		d, now, random := NewDrain(DrainConfig{}), time.Unix(1e6, 0), rand.New(rand.NewPCG(1, 2))
		share := float64(streams) / 1.5
		here, firstAt, total, greatest := streams, -1, 0, 0
		for second := range 600 {
			n := d.Step(DrainInput{Now: now.Add(time.Duration(second) * time.Second), Streams: here, Share: share, Peers: 2, Movable: here, LeaderAge: time.Hour, Random: random.Float64()})
			if n > 0 && firstAt < 0 {
				firstAt = second
			}
			here, total, greatest = here-n, total+n, max(greatest, n)
		}
		rate := min(10, .02*float64(streams))
		if firstAt < 60 || firstAt > 65 {
			t.Errorf("%d streams: the first was closed after %d s", streams, firstAt)
		}
		if float64(greatest) > 1.5*rate+2 || float64(here) > 1.1*share || float64(here) < 1.1*share-2 {
			t.Errorf("%d streams: %d are left of a share of %.0f, at most %d in a second", streams, here, share, greatest)
		}
	}
	// The rate on average.
	d, now, closed := NewDrain(DrainConfig{}), time.Unix(1e6, 0), 0
	for second := range 200 {
		n := d.Step(DrainInput{Now: now.Add(time.Duration(second) * time.Second), Streams: 10_000, Share: 2000, Peers: 1, Movable: 10_000, LeaderAge: time.Hour, Random: .5})
		if second >= 100 {
			closed += n
		}
	}
	if closed != 1000 {
		t.Errorf("%d closed in 100 s", closed)
	}
}

// Nothing is closed where that is wrong, and nothing is saved up for later meanwhile.
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
		"even":           func(in *DrainInput) { in.Share = 850 },
		"a few too many": func(in *DrainInput) { in.Streams, in.Share = 15, 8 },
	} {
		d, now, closed := NewDrain(DrainConfig{}), time.Unix(1e6, 0), 0
		step := func(in DrainInput, seconds int) {
			for range seconds {
				now = now.Add(time.Second)
				in.Now = now
				closed += d.Step(in)
			}
		}
		bad := good
		change(&bad)
		step(bad, 300)
		if closed != 0 {
			t.Errorf("%s: %d closed", name, closed)
		}
		step(good, 1)
		if closed > 16 {
			t.Errorf("%s: and %d at once when it was over", name, closed)
		}
		step(good, 120)
		if closed < 100 {
			t.Errorf("%s: %d closed when it was over", name, closed)
		}
		if step(bad, 60); name == "a storm" {
			before := closed
			if step(good, 10); closed == before {
				t.Error("after a storm another minute goes by")
			}
		}
	}
}

// A replica that leaves tells the others first, sends its streams away evenly, and ends what is left before the grace is over.
func TestLeaving(t *testing.T) {
	began := time.Unix(1e6, 0)
	run := func(streams int, grace time.Duration, in func(after time.Duration) LeavingInput) (left int, first, end time.Duration, greatest int) {
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
	told := func(after time.Duration) LeavingInput { return LeavingInput{Peers: 2, Told: after >= time.Second} }
	if left, first, end, greatest := run(6000, 30*time.Second, told); left > 120 || first < time.Second || first > 2*time.Second || end > 28*time.Second || greatest > 60 {
		t.Errorf("left %d, first at %v, end at %v, at most %d at once", left, first, end, greatest)
	}
	never := func(time.Duration) LeavingInput { return LeavingInput{Peers: 2} }
	if left, first, _, _ := run(1000, 30*time.Second, never); left > 20 || first < 3*time.Second || first > 4*time.Second {
		t.Errorf("nobody heard it: left %d, first at %v", left, first)
	}
	if left, _, end, _ := run(1000, 30*time.Second, func(time.Duration) LeavingInput { return LeavingInput{} }); left != 1000 || end != 0 {
		t.Errorf("with nobody to take over: left %d, end at %v", left, end)
	}
	if _, _, end, _ := run(0, 30*time.Second, told); end != 0 {
		t.Errorf("without streams: end at %v", end)
	}
	if _, _, end, _ := run(3, 5*time.Second, told); end > 5*time.Second {
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
