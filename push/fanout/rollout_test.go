package fanout

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestRollout(t *testing.T) {
	const four = "j:n/a j:n/b j:n/c j:n/d "
	const seven = four + "j:n/e j:n/f j:n/g "
	// widened: two streams have accepted plan 1, so that four may try it; no other stream has it.
	const widened = seven + "n:a:1 n:b:1 d:a:1 d:b:1 y:a:1 y:b:1 "
	for name, c := range map[string]struct{ events, want string }{
		"a plan is tried on a few":              {four + "n:a:1 n:b:1 n:c:1 d:a:1 d:b:1", "a b"},
		"what is not new goes to all":           {four + "c:a c:b c:c c:d d:a:1 d:b:1", "a b c d"},
		"also beside it":                        {four + "n:a:1 n:b:1 n:c:1 c:d", "a b d"},
		"one that takes it lets two more":       {four + "n:a:1 n:b:1 n:c:1 n:d:1 d:a:1 d:b:1 y:a:1", "a b c d"},
		"bytes that are acknowledged do not":    {four + "n:a:1 n:b:1 n:c:1 d:a:1 d:b:1 k:a:1 k:b:1", "a b"},
		"one that takes it before it is sent":   {four + "n:a:1 n:b:1 n:c:1 n:d:1 y:a:1 d:a:1", "a b c d"},
		"nothing to send lets one more":         {four + "n:a:1 n:b:1 n:c:1 n:d:1 d:a:0 s:a:1", "a b c"},
		"leaving gives the place back":          {four + "n:a:1 n:b:1 n:c:1 n:d:1 l:a", "a b c"},
		"a slow one does not stop it":           {four + "n:a:1 n:b:1 n:c:1 d:a:1 t", "a b c"},
		"one that has its turn is not slow":     {four + "n:a:1 n:b:1 n:c:1 t t", "a b"},
		"turns for endpoints are none":          {four + "n:a:1 n:b:1 n:c:1 d:a:1 w e:a d:a:1 t", "a b a c"},
		"and counts when it takes it":           {four + "n:a:1 n:b:1 n:c:1 n:d:1 d:a:1 t y:a:1", "a b c d"},
		"endpoints are not held":                {four + "n:a:1 n:b:1 n:c:1 e:c e:d", "a b c! d"},
		"nor are answers":                       {four + "n:a:1 n:b:1 n:c:1 a:c a:d", "a b c! d"},
		"gateways first":                        {four + "g:gw/x n:a:1 n:b:1 n:c:1 n:x:1 d:a:1 s:a:1", "a b x"},
		"a wider window":                        {widened + "n:c:1 n:d:1 n:e:1 n:f:1 n:g:1", "a b c d e f"},
		"the next plan is tried from the start": {widened + "n:c:2 n:d:2 n:e:2", "a b c d"},
		"an older plan is no rollout":           {widened + "n:c:1 n:d:2 n:e:1 n:f:2 n:g:2", "a b c d e"},
		"those who took the one before":         {seven + "n:a:1 n:b:1 n:c:2 n:d:2 n:e:2 d:a:1 y:a:1 y:b:1 s:b:1", "a b c d"},
		"places of the one before are free":     {seven + "n:a:1 n:b:1 n:c:1 n:d:2", "a b c d"},
		"one is tried on again":                 {seven + "n:a:1 n:b:1 d:a:1 n:a:2 n:c:2 d:b:1 y:b:1", "a b a c"},
		"a refusal keeps its place":             {four + "n:a:1 n:b:1 n:c:1 d:a:1 d:b:1 r:a:1", "a b"},
		"for a second":                          {four + "n:a:1 n:b:1 n:c:1 d:a:1 d:b:1 r:a:1 t", "a b c"},
		"not after another plan":                {four + "n:a:1 n:b:1 d:a:1 d:b:1 r:a:1 r:b:1 n:c:2 n:d:2", "a b c d"},
		"one identity keeps one place":          {four + "n:a:1 n:b:1 n:c:1 n:d:1 r:a:1:x r:b:1:x", "a b c"},
		"those who refuse do not take it too":   {four + "n:a:1 n:b:1 n:c:1 d:a:1 d:b:1 r:a:1 y:b:1", "a b c"},
		"a refusal takes the window back":       {widened + "n:c:1 n:d:1 n:e:1 n:f:1 n:g:1 r:c:1", "a b c d e f"},
		"but one identity does so once":         {widened + "r:a:1:x y:b:1 y:b:1 y:b:1 r:b:1:x n:c:1 n:d:1 n:e:1 n:f:1 n:g:1", "a b c d e f"},
		"a late mark needs no other turn":       {four + "n:a:1 n:b:1 d:a:1 d:b:1 n:a:1 n:b:1", "a b a b"},
		"but one after nothing was sent does":   {four + "n:a:1 d:a:1 s:a:1 n:b:1 n:c:1 n:a:1 n:d:1 d:b:1 s:b:1 d:c:1 s:c:1", "a b c a d"},
		"refusals of the plan before":           {seven + "n:a:1 n:b:1 n:c:2 r:a:1 r:b:1 n:d:2", "a b c d"},
	} {
		if got := script(Budget{Rollout: 2}, c.events); got != c.want {
			t.Errorf("%s: granted %q, want %q", name, got, c.want)
		}
	}
}

// fleet is a queue with proxies in simulated time. Each proxy acknowledges or refuses a while after it was granted.
type fleet struct {
	q       *Queue[int]
	now     time.Time
	after   time.Duration // from the turn to the proxy's answer
	bad     int64         // the first plan with the version that all proxies refuse; 0: none
	fixed   int64         // the first later plan without that version; 0: none
	has     []int64       // the plan of each proxy
	tried   map[int]bool  // the proxies that were sent the bad version
	by      func(int) string
	refused map[string]bool // identities; after refusals by three, the version is withheld from all
	due     []answer        // the oldest first
}

type answer struct {
	at     time.Time
	stream int
	plan   int64
	bad    bool
}

func newFleet(streams int, after time.Duration, by func(int) string) *fleet {
	f := &fleet{q: NewQueue[int](Budget{}), now: time.Unix(100, 0), after: after, has: make([]int64, streams), tried: map[int]bool{}, refused: map[string]bool{}, by: by}
	for s := range streams {
		f.step(Event[int]{Op: Join, Stream: s, Namespace: fmt.Sprint(s % 7)})
	}
	return f
}

func (f *fleet) step(e Event[int]) {
	for _, g := range f.q.Step(f.now, e) {
		bad := f.bad > 0 && g.Plan >= f.bad && (f.fixed == 0 || g.Plan < f.fixed) && len(f.refused) < 3
		if bad {
			f.tried[g.Stream] = true
		}
		f.due = append(f.due, answer{f.now.Add(f.after), g.Stream, g.Plan, bad})
		f.step(Event[int]{Op: Done, Stream: g.Stream, Bytes: 9})
	}
}

// edit marks all proxies for another plan.
func (f *fleet) edit(plan int64) {
	for s := range f.has {
		f.step(Event[int]{Op: Mark, Stream: s, Lane: Config, Plan: plan})
	}
}

// pass advances the time by d and lets the proxies answer.
func (f *fleet) pass(d time.Duration) {
	end := f.now.Add(d)
	for {
		at, ok := f.q.Next()
		if len(f.due) > 0 && (!ok || f.due[0].at.Before(at)) {
			at, ok = f.due[0].at, true
		}
		if !ok || at.After(end) {
			break
		}
		f.now = at
		if len(f.due) == 0 || f.due[0].at.After(at) {
			f.step(Event[int]{Op: Tick})
			continue
		}
		a := f.due[0]
		f.due = f.due[1:]
		f.step(Event[int]{Op: Ack, Stream: a.stream, Bytes: 9})
		if a.plan == 0 {
			continue // a turn without a newer plan
		}
		if a.bad {
			f.refused[f.by(a.stream)] = true
			f.step(Event[int]{Op: Refuse, Stream: a.stream, Plan: a.plan, By: f.by(a.stream)})
		} else {
			f.has[a.stream] = a.plan
			f.step(Event[int]{Op: Accept, Stream: a.stream, Plan: a.plan})
		}
	}
	f.now = end
}

// After good edits comes one that all proxies refuse, and then good ones again: the bad version reaches few proxies,
// whatever the time between edits, and all proxies receive the good ones.
func TestBadPlanAmongGoodOnes(t *testing.T) {
	const streams = 300
	for _, gap := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, 1200 * time.Millisecond} {
		for _, after := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
			f := newFleet(streams, after, func(s int) string { return fmt.Sprint(s) })
			f.bad = 7
			for plan := range int64(14) {
				f.edit(plan + 1)
				f.pass(gap)
			}
			f.pass(5 * time.Second)
			f.edit(15) // the version is withheld
			f.pass(5 * time.Second)
			// Each plan reaches at most eight proxies, and a second plan reaches others only if it came before the refusals.
			if most := 8 * (1 + int(after/gap)); len(f.tried) > most {
				t.Errorf("edits each %v, answers after %v: %d of %d were sent the bad one, want %d at most", gap, after, len(f.tried), streams, most)
			}
			if least := slices.Min(f.has); least != 15 {
				t.Errorf("edits each %v, answers after %v: one has plan %d", gap, after, least)
			}
		}
	}
}

// With proxies of two identities, a plan that all refuse has reached eight of them before the first answers. With
// proxies of many identities it reaches eight; after the backoff all others receive the plan without the refused
// version.
func TestRefusedPlanStops(t *testing.T) {
	f := newFleet(300, time.Millisecond, func(s int) string { return fmt.Sprint(s % 2) })
	f.bad = 2
	f.edit(1)
	f.pass(time.Second)
	f.edit(2)
	f.pass(time.Millisecond / 2)
	if n := len(f.tried); n != 8 {
		t.Errorf("%d were sent it", n)
	}
	f = newFleet(300, time.Millisecond, func(s int) string { return fmt.Sprint(s) })
	f.bad = 2
	f.edit(1)
	f.pass(time.Second)
	f.edit(2)
	f.pass(refusalBackoff)
	if n := slices.Max(f.has); len(f.tried) != 8 || n != 1 {
		t.Errorf("%d were sent it, and one has plan %d", len(f.tried), n)
	}
	f.pass(refusalBackoff)
	if n := slices.Min(f.has[8:]); len(f.tried) != 8 || n != 2 {
		t.Errorf("after it was withheld %d were sent it, and one has plan %d", len(f.tried), n)
	}
}

// The number of proxies that may try a plan doubles with each round of acknowledgements. With ten edits in a second,
// also when acknowledgements arrive later than the next edit, all proxies are served.
func TestRolloutsDoNotHoldUpAFleet(t *testing.T) {
	none := func(int) string { return "" }
	f := newFleet(1000, 10*time.Millisecond, none)
	f.edit(1)
	var rounds []int
	for range 7 {
		rounds = append(rounds, len(f.due))
		f.pass(10 * time.Millisecond)
	}
	if !slices.Equal(rounds, []int{8, 16, 32, 64, 128, 256, 496}) {
		t.Errorf("rounds of %v", rounds)
	}
	for _, c := range []struct {
		streams int
		after   time.Duration
		plans   int // all proxies must have received a plan after this many
	}{{1000, time.Millisecond, 2}, {1000, 50 * time.Millisecond, 30}, {2000, 50 * time.Millisecond, 30}, {2000, 400 * time.Millisecond, 160}} {
		f := newFleet(c.streams, c.after, none)
		behind := 0
		for plan := range int64(c.plans * 5 / 4) {
			f.edit(plan + 1)
			f.pass(100 * time.Millisecond)
			behind = max(behind, int(plan+1-slices.Min(f.has)))
		}
		if behind > c.plans {
			t.Errorf("%d proxies that answer after %v: one was %d plans behind, want %d at most", c.streams, c.after, behind, c.plans)
		} else {
			t.Logf("%d proxies that answer after %v: one was %d plans behind", c.streams, c.after, behind)
		}
	}
}
