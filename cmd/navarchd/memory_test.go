package main

import (
	"testing"
	"time"
)

// Memory is given back once after each storm, when it is over and when there is enough.
func TestTidy(t *testing.T) {
	now := time.Unix(1000, 0)
	var s tidy
	freed := 0
	pass := func(seconds int, joins, spare uint64) {
		for range seconds {
			now = now.Add(time.Second)
			if s.step(now, joins, spare) {
				freed++
			}
		}
	}
	const much = worthFree * 2
	want := func(what string, n int) {
		t.Helper()
		if freed != n {
			t.Errorf("%s: freed %d times, want %d", what, freed, n)
		}
		freed = 0
	}
	pass(60, 0, much)
	want("nobody has joined", 0)
	for i := range 10 {
		pass(1, uint64(100*(i+1)), much)
	}
	want("while they join", 0)
	pass(10, 1000, much)
	want("after the storm", 1)
	pass(600, 1000, much)
	want("nothing new", 0)
	pass(10, 1001, worthFree-1)
	want("not worth it", 0)
	pass(10, 1001, much)
	want("the last collection was before the end of the storm", 1)
	pass(40, 1001, much)
	pass(1, 1002, much)
	pass(5, 1002, much)
	want("another, later", 1)
	pass(1, 1003, much)
	pass(10, 1003, much)
	want("too soon after the last", 0)
	pass(30, 1003, much)
	want("and then", 1)
}
