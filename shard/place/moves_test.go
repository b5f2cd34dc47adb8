//go:build !race

package place

import (
	"testing"
	"time"
)

// Moves starts slowly, gets as fast as the replicas may be together where goroutines find a processor, and as slow as
// it may where they do not.
func TestMovesPace(t *testing.T) {
	const idle, middling, full = 0, 1500 * time.Microsecond, 10 * time.Millisecond
	for name, c := range map[string]struct {
		wait           time.Duration
		streams, peers int
		first, last    [2]int // notified in the first and in the last second, from and to
	}{
		"idle":                       {idle, 1000, 3, [2]int{10, 40}, [2]int{33, 34}},
		"idle, one of two":           {idle, 1000, 1, [2]int{10, 60}, [2]int{99, 101}},
		"idle, alone":                {idle, 1000, 0, [2]int{10, 60}, [2]int{99, 101}},
		"full":                       {full, 1000, 3, [2]int{8, 11}, [2]int{9, 11}},
		"neither":                    {middling, 1000, 3, [2]int{8, 11}, [2]int{9, 11}},
		"full, and large":            {full, 7000, 3, [2]int{60, 71}, [2]int{69, 71}},
		"idle, and larger than most": {idle, 9000, 3, [2]int{80, 91}, [2]int{89, 91}},
		"one of many":                {idle, 1000, 100, [2]int{8, 11}, [2]int{9, 11}},
	} {
		m := NewMoves(MovesConfig{})
		now := time.Unix(1e6, 0)
		count := func(seconds int, in MovesInput) (notified int) {
			for range seconds * int(time.Second/m.StepEvery()) {
				now = now.Add(m.StepEvery())
				in.Now = now
				notified += m.Step(in)
			}
			return notified
		}
		in := MovesInput{Left: 1 << 20, Streams: c.streams, Peers: c.peers, Wait: c.wait}
		if notified := count(1, in); notified < c.first[0] || notified > c.first[1] {
			t.Errorf("%s: %d notified in the first second, want %v", name, notified, c.first)
		}
		count(20, in)
		if notified := count(1, in); notified < c.last[0] || notified > c.last[1] {
			t.Errorf("%s: %d notified in the last second, want %v", name, notified, c.last)
		}
		in.Wait = full
		count(3, in)
		if notified, least := count(1, in), max(10, c.streams/100); notified < least-1 || notified > least+1 {
			t.Errorf("%s: %d notified in a second when the machine was full, want %d", name, notified, least)
		}
	}
}

// Unused moves are not accumulated, and one reason for moves does not use the pace of another; no agent is notified
// twice.
func TestMovesSaveNothing(t *testing.T) {
	m := NewMoves(MovesConfig{})
	now := time.Unix(1e6, 0)
	for range 100 {
		now = now.Add(m.StepEvery())
		if n := m.Step(MovesInput{Now: now, Left: 2, Streams: 1000, Peers: 1}); n > 2 {
			t.Fatalf("%d of two were notified", n)
		}
	}
	now = now.Add(m.StepEvery())
	if n := m.Step(MovesInput{Now: now, Left: 1000, Streams: 1000, Peers: 1}); n > 21 {
		t.Errorf("%d were notified after only two could be", n)
	}
	now = now.Add(time.Minute)
	if n := m.Step(MovesInput{Now: now, Left: 1000, Streams: 1000, Peers: 1}); n > 3 {
		t.Errorf("%d were notified after a minute", n)
	}
}

// A replica that leaves notifies all agents in time and evenly, however busy the machine is.
func TestMovesOfOneThatLeaves(t *testing.T) {
	m := NewMoves(MovesConfig{})
	now := time.Unix(1e6, 0)
	by := now.Add(6 * time.Second)
	left, most := 3000, 0
	for ; now.Before(by); now = now.Add(m.StepEvery()) {
		n := m.Step(MovesInput{Now: now, Left: left, Streams: 3000, Peers: 2, Wait: time.Second, By: by})
		left, most = left-n, max(most, n)
	}
	if left > 100 || most > 55 {
		t.Errorf("%d were not notified, at most %d were at once; want some 50 each time", left, most)
	}
	for range 3 {
		now = now.Add(m.StepEvery())
		left -= m.Step(MovesInput{Now: now, Left: left, Streams: 3000, Peers: 2, Wait: time.Second, By: by})
	}
	if left != 0 {
		t.Errorf("%d are not notified after their time", left)
	}
}

// The agents of a replica that leaves are notified in the first half of its time, and have moved by themselves; the
// streams of others are closed all the while, and only at the end those that an agent has not moved.
func TestLeavingLetsAgentsMove(t *testing.T) {
	began := time.Unix(1e6, 0)
	for name, grace := range map[string]time.Duration{"short": 5 * time.Second, "default": 10 * time.Second, "long": 2 * time.Minute} {
		l := &Leaving{Began: began, Grace: grace}
		stock, follow := 300, 600
		var notifyBy, forced time.Time
		for now := began; ; now = now.Add(l.StepEvery()) {
			s := l.Step(LeavingInput{Now: now, Streams: stock + follow, Follow: follow, Peers: 2, HandedOver: true})
			if s.GoAway {
				if now.After(began.Add(grace)) {
					t.Errorf("%s: ends after %v", name, now.Sub(began))
				}
				break
			}
			if notifyBy.IsZero() {
				notifyBy = s.NotifyBy
			}
			if !s.NotifyBy.Equal(notifyBy) || notifyBy.Sub(began) < 25*grace/100 || notifyBy.Sub(began) > grace/2 {
				t.Fatalf("%s: all are notified by %v, %v", name, s.NotifyBy.Sub(began), notifyBy.Sub(began))
			}
			if s.All && forced.IsZero() {
				forced = now
			}
			gone := min(s.Close, stock)
			if stock -= gone; gone < s.Close && !s.All {
				t.Fatalf("%s: %d closed of agents that move", name, s.Close-gone)
			}
			follow -= s.Close - gone
		}
		if forced.Sub(notifyBy) < grace/5 || stock > 20 || follow > 150 {
			t.Errorf("%s: notified by %v, closed from %v on; %d and %d are left", name, notifyBy.Sub(began), forced.Sub(began), stock, follow)
		}
	}
}
