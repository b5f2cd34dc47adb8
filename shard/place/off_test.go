package place

import (
	"testing"
	"time"
)

// A control loop that is switched off has no effect: its benefit is measured in this way.
func TestLoopsThatAreOff(t *testing.T) {
	a := NewAdmission(AdmissionConfig{Pace: PaceConfig{Most: 1}, Off: true})
	for range 1000 { // Run is not running: with the loop on, no stream would be admitted
		if err := a.Wait(t.Context(), CostFull); err != nil {
			t.Fatal(err)
		}
	}
	if s := a.State(); s.Admitted != 1000 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	now := time.Unix(1000, 0)
	if n := NewMoves(MovesConfig{Off: true}).Step(MovesInput{Now: now, Left: 500, Streams: 500, Wait: time.Second}); n != 500 {
		t.Errorf("%d of 500 agents are notified", n)
	}
	for off, want := range map[bool]bool{true: false, false: true} {
		d, closed := NewDrain(DrainConfig{Off: off}), false
		for i := range 200 {
			closing, _ := d.Step(DrainInput{Now: now.Add(time.Duration(i) * time.Second), Streams: 900, Share: 300, Peers: 2, Movable: 900, LeaderAge: time.Hour})
			closed = closed || closing
		}
		if closed != want {
			t.Errorf("off %t: a stream was closed: %t", off, closed)
		}
	}
}
