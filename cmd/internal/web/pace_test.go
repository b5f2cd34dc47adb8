package web

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A caller has a quarter of a processor at most, however it asks, and others have theirs meanwhile; what it may have waiting is bounded, and nothing is kept of who has gone.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		began := time.Now()
		answer := func(caller string, takes time.Duration) {
			made, err := p.Take(t.Context(), caller)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(takes)
			made()
			made()
		}
		for range 5 {
			answer("a", time.Second)
		}
		if took := time.Since(began); took != 17*time.Second { // four pauses of 3 s between five answers
			t.Errorf("five answers took %v", took)
		}
		before := time.Now()
		if answer("b", time.Second); time.Since(before) != time.Second {
			t.Errorf("another caller waited: %v", time.Since(before))
		}
		time.Sleep(time.Minute)
		before = time.Now()
		answer("a", time.Minute)
		if answer("a", 0); time.Since(before) != time.Minute+longestPause {
			t.Errorf("the longest pause ends after %v", time.Since(before)-time.Minute)
		}
		for range mostWaiting {
			go answer("c", time.Second)
		}
		synctest.Wait()
		if _, err := p.Take(t.Context(), "c"); !errors.Is(err, ErrBusy) {
			t.Errorf("one more than may wait: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		made, err := p.Take(t.Context(), "d")
		if err != nil {
			t.Error(err)
		}
		leave()
		if _, err := p.Take(gone, "d"); !errors.Is(err, context.Canceled) {
			t.Errorf("one that went: %v", err)
		}
		made()
		time.Sleep(time.Hour)
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.callers) != 0 {
			t.Errorf("%d callers are kept", len(p.callers))
		}
	})
}
