package web

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(2, 3)
		take := func(caller string) Turn {
			t.Helper()
			turn, err := s.Take(t.Context(), caller)
			if err != nil {
				t.Error(err)
			}
			return turn
		}
		first, second := take("a"), take("a")
		if _, err := s.Try("b"); !errors.Is(err, ErrBusy) {
			t.Errorf("a third at once: %v", err)
		}
		got := make(chan string, 2)
		for _, who := range []string{"a", "b"} { // both wait
			go func() { defer take(who).Done(); got <- who }()
			synctest.Wait()
		}
		if _, err := s.Take(t.Context(), "a"); !errors.Is(err, ErrBusy) {
			t.Errorf("a fourth of one caller: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := s.Take(gone, "c"); !errors.Is(err, context.Canceled) {
			t.Errorf("one that went: %v", err)
		}
		if len(got) != 0 {
			t.Error("more than two at once")
		}
		first.Made()
		first.Made() // once
		if a, b := <-got, <-got; a != "a" || b != "b" {
			t.Errorf("%s came before %s", a, b)
		}
		synctest.Wait()
		if len(s.places) != 1 {
			t.Errorf("%d slots are taken, want 1", len(s.places))
		}
		second.Done()
		third := take("a")
		third.Made()
		fourth := take("a")
		if _, err := s.Take(t.Context(), "a"); !errors.Is(err, ErrBusy) {
			t.Errorf("another one, while three are read or made: %v", err)
		}
		fifth, err := s.Try("b")
		if err != nil {
			t.Errorf("answers that are read keep others waiting: %v", err)
		}
		for _, turn := range []Turn{first, third, fourth, fifth} {
			turn.Done()
		}
		if len(s.places) != 0 || len(s.callers) != 0 {
			t.Errorf("something is kept: %d, %v", len(s.places), s.callers)
		}
	})
}
