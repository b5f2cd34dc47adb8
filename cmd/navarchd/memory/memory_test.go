package memory

import (
	"math"
	"runtime/debug"
	"testing"
	"time"
)

// Memory is returned once after each storm, when the storm is over and enough memory is free.
func TestTidy(t *testing.T) {
	now := time.Unix(1000, 0)
	var s tidy
	freed := 0
	busy := false
	live := uint64(1 << 30)
	pass := func(seconds int, burst, spare uint64) {
		for range seconds {
			now = now.Add(time.Second)
			if s.step(now, burst, busy, spare, live) {
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
	busy = true
	pass(60, 1004, much)
	want("busy with something else after the storm", 0)
	busy = false
	pass(10, 1004, much)
	want("calm at last", 1)
	live = 4 * worthFree
	pass(60, 1005, worthFree/2-1)
	want("not worth it in a small process", 0)
	pass(10, 1005, worthFree/2)
	want("much for a small process", 1)
}

// While the processors are busy, and for a while after, more garbage is permitted if memory allows it.
func TestCollector(t *testing.T) {
	const cores, live, limit = 4, 60 << 20, 1 << 30
	busy, calm := cores*busyPart, cores*busyPart*.9
	type second struct {
		used float64 // processors
		came Counts
		live uint64
		want int
	}
	many, few := Counts{Bursts: busyBurst}, Counts{Bursts: busyBurst - 1}
	for name, seconds := range map[string][]second{
		"calm":                 {{calm, many, live, CalmPercent}, {calm, many, live, CalmPercent}},
		"busy":                 {{busy, many, live, busyPercent}, {busy, many, live, busyPercent}},
		"calm again":           {{busy, many, live, busyPercent}, {0, many, live, busyPercent}, {0, many, live, busyPercent}, {0, many, live, busyPercent}, {0, many, live, busyPercent}, {0, many, live, CalmPercent}},
		"busy again":           {{busy, many, live, busyPercent}, {0, many, live, busyPercent}, {0, many, live, busyPercent}, {busy, many, live, busyPercent}, {0, many, live, busyPercent}, {0, many, live, busyPercent}, {0, many, live, busyPercent}},
		"memory is scarce":     {{busy, many, limit / 2, CalmPercent}, {busy, many, limit/3 + 1, CalmPercent}, {busy, many, limit / 3, CalmPercent + 15}},
		"much lives":           {{busy, many, 256 << 20, CalmPercent + 25}, {busy, many, 320 << 20, CalmPercent + 20}, {calm, many, 320 << 20, CalmPercent + 20}},
		"little comes":         {{busy, few, live, CalmPercent}, {busy, Counts{}, live, CalmPercent}, {busy, many, live, busyPercent}},
		"edits":                {{busy, Counts{Edits: 1}, live, busyPercent}, {0, Counts{}, live, busyPercent}},
		"few edits":            {{calm, Counts{Edits: 1}, live, CalmPercent}, {busy, Counts{}, live, CalmPercent}},
		"what was used before": {{0, many, live, CalmPercent}},
	} {
		var c collector
		var l load
		now, used, came := time.Unix(1000, 0), time.Hour, Counts{1000, 1000} // of a process that has lived for a while
		c.step(now, l.busy(now, used, cores*time.Second), came, live, limit)
		for i, s := range seconds {
			now, used = now.Add(time.Second), used+time.Duration(s.used*float64(time.Second))
			came = Counts{came.Bursts + s.came.Bursts, came.Edits + s.came.Edits}
			if got := c.step(now, l.busy(now, used, cores*time.Second), came, s.live, limit); got != s.want {
				t.Errorf("%s: %d percent after second %d, want %d", name, got, i, s.want)
			}
		}
	}
	for live := uint64(1); live < 8<<30; live += 10 << 20 { // whoever keeps it busy does not have it grow without bound
		c := collector{busy: time.Unix(1000, 0)}
		percent := uint64(c.step(time.Unix(1000, 0), false, Counts{}, live, 1<<40))
		if more := live * (percent - CalmPercent) / 100; more > busyGarbage {
			t.Fatalf("%d MB live: %d MB of garbage more than while it is calm", live>>20, more>>20)
		}
	}
	var c collector
	var l load
	if got := c.step(time.Unix(1000, 0), l.busy(time.Unix(1000, 0), time.Hour, cores*time.Second), many, live, limit); got != CalmPercent {
		t.Errorf("at first %d percent", got)
	}
}

// After a burst of joins a process may be busy for long with sending to the new proxies; memory is returned afterwards.
func TestProcessGivesBackWhenItIsDone(t *testing.T) {
	const cores = 2
	var p process
	now, used := time.Unix(1000, 0), time.Duration(0)
	seconds := func(n int, of float64, joins uint64) (freed int) {
		for range n {
			now, used = now.Add(time.Second), used+time.Duration(of*cores*float64(time.Second))
			if _, free := p.step(now, used, cores*time.Second, Counts{Bursts: joins}, heap{live: 200 << 20, spare: 100 << 20}, 1<<40); free {
				freed++
			}
		}
		return freed
	}
	if n := seconds(1, 1, 1) + seconds(1, 1, 2000) + seconds(20, .9, 2000); n != 0 {
		t.Errorf("given back %d times while it sends", n)
	}
	if n := seconds(60, .01, 2000); n != 1 {
		t.Errorf("given back %d times once it is done", n)
	}
}

// The defaults for one tenant follow the memory limit of the process.
func TestTenant(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for limit, want := range map[int64][2]int{
		1 << 28: {40, 128}, 1 << 30 / 10 * 9: {46, 230}, 1 << 33: {409, 2048}, math.MaxInt64: {128, 512},
	} {
		debug.SetMemoryLimit(limit)
		if exported, own := Tenant(); exported != want[0] || own != want[1] {
			t.Errorf("of %d bytes: %d and %d MiB, want %v", limit, exported, own, want)
		}
	}
}
