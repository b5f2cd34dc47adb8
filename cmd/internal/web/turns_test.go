package web

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A limited number of costly answers is made concurrently, in the order of their requests. A caller's answers count
// until they are read.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTurns(2, 3)
		costly := func(caller string) Question { return Question{Caller: caller, Costly: true} }
		take := func(caller string) Turn {
			t.Helper()
			turn, err := s.Take(t.Context(), costly(caller))
			if err != nil {
				t.Error(err)
			}
			return turn
		}
		first, second := take("a"), take("a")
		got := make(chan string, 2)
		for _, who := range []string{"a", "b"} { // both wait
			go func() { defer take(who).Done(); got <- who }()
			synctest.Wait()
		}
		if _, err := s.Take(t.Context(), costly("a")); !errors.Is(err, ErrBusy) {
			t.Errorf("a fourth of one caller: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := s.Take(gone, costly("c")); !errors.Is(err, context.Canceled) {
			t.Errorf("one that went: %v", err)
		}
		if len(got) != 0 {
			t.Error("more than two at once")
		}
		if turn, err := s.Take(gone, Question{Caller: "c"}); err != nil {
			t.Errorf("one that is not costly: %v", err)
		} else {
			turn.Done()
		}
		first.Made()
		first.Made() // once
		if a, b := <-got, <-got; a != "a" || b != "b" {
			t.Errorf("%s came before %s", a, b)
		}
		synctest.Wait()
		if len(s.costly) != 1 {
			t.Errorf("%d slots are taken, want 1", len(s.costly))
		}
		second.Done()
		third := take("a")
		third.Made()
		fourth := take("a")
		if _, err := s.Take(t.Context(), costly("a")); !errors.Is(err, ErrBusy) {
			t.Errorf("another one, while three are read or made: %v", err)
		}
		fifth, err := s.Take(t.Context(), costly("b"))
		if err != nil {
			t.Errorf("answers that are read keep others waiting: %v", err)
		}
		for _, turn := range []Turn{first, third, fourth, fifth} {
			turn.Done()
		}
		if len(s.costly) != 0 || len(s.callers) != 0 {
			t.Errorf("something is kept: %d, %v", len(s.costly), s.callers)
		}
	})
}

// A tenant gets at most a tenth of a processor, with any number of identities, and other tenants are not delayed; no
// state is kept after callers have left.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestTenantsHaveAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTurns(1, 1)
		answer := func(tenant, caller string, takes time.Duration) {
			turn, err := s.Take(t.Context(), Question{Caller: caller, Tenant: tenant})
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(takes)
			turn.Done()
		}
		began := time.Now()
		for i := range 5 {
			answer("a", fmt.Sprint(i), time.Second)
		}
		if took := time.Since(began); took != 41*time.Second { // four pauses of 9 s between five answers
			t.Errorf("five answers took %v", took)
		}
		before := time.Now()
		if answer("b", "x", time.Second); time.Since(before) != time.Second {
			t.Errorf("another tenant waited: %v", time.Since(before))
		}
		time.Sleep(time.Minute)
		before = time.Now()
		answer("a", "x", time.Minute)
		if answer("a", "x", 0); time.Since(before) != 5*time.Minute {
			t.Errorf("the longest pause ends after %v", time.Since(before)-time.Minute)
		}
		before = time.Now()
		answer("p", "x", 25*time.Second)
		if answer("p", "x", 0); time.Since(before) != 250*time.Second {
			t.Errorf("the pause after 25 s ends after %v", time.Since(before)-25*time.Second)
		}
		gone, leave := context.WithCancel(t.Context())
		turn, err := s.Take(t.Context(), Question{Caller: "x", Tenant: "d", Costly: true})
		if err != nil {
			t.Error(err)
		}
		leave()
		for _, tenant := range []string{"d", "e"} { // for the tenant's turn, and for that of what is costly
			if _, err := s.Take(gone, Question{Caller: "y", Tenant: tenant, Costly: true}); !errors.Is(err, context.Canceled) {
				t.Errorf("one that went: %v", err)
			}
		}
		synctest.Wait()
		time.Sleep(time.Nanosecond)
		answer("e", "y", 0) // a cancelled request causes no pause
		turn.Done()
		time.Sleep(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.tenants)+len(s.callers) != 0 {
			t.Errorf("%d tenants and %d callers are kept", len(s.tenants), len(s.callers))
		}
	})
}

// Answers with a Place of their own wait for that place alone, and keep no costly answer waiting.
func TestTurnsOfAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, place := NewTurns(1, 2), make(chan struct{}, 1)
		own := Question{Caller: "a", Costly: true, Place: place}
		first, err := s.Take(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan Turn)
		go func() {
			turn, err := s.Take(t.Context(), own)
			if err != nil {
				t.Error(err)
			}
			second <- turn
		}()
		synctest.Wait() // the second waits for the place
		costly, err := s.Take(t.Context(), Question{Caller: "b", Costly: true})
		if err != nil {
			t.Fatal(err)
		}
		costly.Done()
		first.Done()
		(<-second).Done()
		if len(place)+len(s.costly)+len(s.callers) != 0 {
			t.Errorf("something is kept: %d, %d, %v", len(place), len(s.costly), s.callers)
		}
	})
}
