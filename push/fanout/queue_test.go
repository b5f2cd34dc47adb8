package fanout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// script runs events and returns who was granted, in order, with "!" where only what is urgent is to be sent. "j:ns/a" joins,
// "g:ns/a" joins as a gateway, "l:a" leaves, "e:a", "a:a" and "c:a" mark in a lane, "d:a:9" is done with 9 bytes, "k:a:9"
// acknowledges 9, "r:a" refuses, "t" is 1 s later, "w" 10 ms, "p:5" goroutines waited 0.5 ms.
func script(b Budget, events string) string {
	q := NewQueue[string](b)
	now := time.Unix(0, 0)
	var out []string
	for _, word := range strings.Fields(events) {
		part := strings.Split(word, ":")
		e := Event[string]{}
		if len(part) > 1 {
			e.Stream = part[1]
		}
		if len(part) > 2 {
			fmt.Sscan(part[2], &e.Bytes)
		}
		switch part[0] {
		case "j":
			ns, name, _ := strings.Cut(part[1], "/")
			e = Event[string]{Op: Join, Stream: name, Namespace: ns}
		case "g":
			ns, name, _ := strings.Cut(part[1], "/")
			e = Event[string]{Op: Join, Stream: name, Namespace: ns, First: true}
		case "r":
			e.Op = Refuse
		case "l":
			e.Op = Leave
		case "e":
			e.Op, e.Lane = Mark, Endpoints
		case "c":
			e.Op, e.Lane = Mark, Config
		case "a":
			e.Op, e.Lane = Mark, Answers
		case "d":
			e.Op = Done
		case "p":
			e.Op = Press
			fmt.Sscan(part[1], &e.Wait)
			e.Wait *= 100 * time.Microsecond
		case "k":
			e.Op = Ack
		case "w":
			e.Op = Tick
			now = now.Add(longWay)
		case "t":
			e.Op = Tick
			now = now.Add(time.Second)
		}
		for _, g := range q.Step(now, e) {
			if g.Urgent {
				g.Stream += "!"
			}
			out = append(out, g.Stream)
		}
	}
	return strings.Join(out, " ")
}

func TestQueue(t *testing.T) {
	one, two := Budget{Streams: 1}, Budget{Trial: 2}
	for name, c := range map[string]struct {
		budget Budget
		events string
		want   string
	}{
		"granted at once":                     {one, "j:n/a c:a", "a"},
		"a stream is queued once a lane":      {one, "j:n/x j:n/a c:x c:a c:a e:a e:a d:x d:a d:a", "x a! a"},
		"marked while sent to: once more":     {one, "j:n/a c:a c:a c:a d:a d:a", "a a"},
		"marked in both while sent to":        {one, "j:n/a c:a c:a e:a d:a d:a d:a", "a a! a"},
		"unknown streams are ignored":         {one, "c:a d:a k:a:1 l:a", ""},
		"budget of streams":                   {Budget{Streams: 2}, "j:n/a j:n/b j:n/c c:a c:b c:c d:a", "a b c"},
		"endpoints first":                     {one, "j:n/x j:n/a j:n/b c:x c:a e:b d:x d:b", "x b a"},
		"urgent, and then in its place":       {one, "j:n/x j:n/a j:n/b j:n/c c:x c:a c:b c:c e:a e:b d:x d:a d:b d:a d:b", "x a! b! a b c"},
		"first while it is urgent":            {Budget{Streams: 2}, "j:n/x j:n/y j:n/a j:n/b c:x c:y c:a c:b e:a d:x d:y d:a d:b", "x y a! b a"},
		"a turn for all takes what is urgent": {one, "j:n/x j:n/a c:x e:a c:a d:x d:a d:a", "x a! a"},
		"answers before configuration":        {one, "j:n/x j:n/a j:n/b j:n/c c:x c:a a:b e:c d:x d:c d:b", "x c b a"},
		"fair between namespaces":             {one, "j:big/x j:big/a j:big/b j:big/c j:small/s c:x c:a c:b c:c c:s d:x d:a d:s d:b", "x a s b c"},
		"leaving frees a turn":                {one, "j:n/a j:n/b c:a c:b l:a", "a b"},
		"leaving the queue":                   {one, "j:n/a j:n/b j:n/c c:a c:b c:c l:b d:a", "a c"},
		"budget of bytes":                     {Budget{Bytes: 10}, "j:n/a j:n/b c:a d:a:10 c:b k:a:10", "a b"},
		"bytes are held until the ACK":        {Budget{Bytes: 10}, "j:n/a j:n/b c:a d:a:10 c:b k:a:0", "a"},
		"an ACK that overtakes Done":          {Budget{Bytes: 10}, "j:n/a j:n/b c:a k:a:10 d:a:10 c:b", "a b"},
		"a slow stream holds up nobody":       {Budget{Bytes: 10}, "j:n/a j:n/b c:a d:a:10 c:b t", "a b"},
		"what was forgiven is not counted":    {Budget{Bytes: 10}, "j:n/a j:n/b c:a d:a:10 t k:a:10 c:a d:a:10 c:b", "a a"},
		"gateways first":                      {one, "j:n/x j:n/a g:gw/b c:x c:a c:b d:x d:b", "x b a"},
		"a change is tried on a few":          {two, "j:n/a j:n/b j:n/c c:a c:b c:c d:a:1 d:b:1", "a b"},
		"an ACK lets two more":                {two, "j:n/a j:n/b j:n/c j:n/d c:a c:b c:c c:d d:a:1 d:b:1 k:a:1", "a b c d"},
		"a refusal, then few again":           {two, "j:n/a j:n/b j:n/c j:n/d c:a c:b d:a:1 d:b:1 k:a:1 k:b:1 r:b c:a c:b c:c c:d d:a:1 d:b:1", "a b a b"},
		"a slow one does not stop it":         {two, "j:n/a j:n/b j:n/c c:a c:b c:c d:a:1 d:b:1 t", "a b c"},
		"nothing to send is no trial":         {two, "j:n/a j:n/b j:n/c c:a c:b c:c d:a:0 d:b:1", "a b c"},
		"endpoints are not held":              {two, "j:n/a j:n/b j:n/c c:a c:b e:c d:a:1 d:b:1", "a b c"},
		"leaving gives the place back":        {two, "j:n/a j:n/b j:n/c c:a c:b c:c d:a:1 d:b:1 l:a", "a b c"},
		"leaving returns bytes":               {Budget{Bytes: 10}, "j:n/a j:n/b c:a d:a:10 c:b l:a", "a b"},
	} {
		if got := script(c.budget, c.events); got != c.want {
			t.Errorf("%s: granted %q, want %q", name, got, c.want)
		}
	}
}

// The window of a trial stays open while changes follow one another, or one of them is under way, and closes after a calm.
func TestTrialAfterACalm(t *testing.T) {
	// Two have taken a change, so that four may try the next.
	const widened = "j:n/a j:n/b j:n/c j:n/d j:n/e j:n/f j:n/g c:a c:b d:a:1 d:b:1 k:a:1 k:b:1 "
	for name, c := range map[string]struct{ events, want string }{
		"the next comes soon":             {widened + "t c:c c:d c:e c:f c:g", "a b c d e f"},
		"the next comes after a calm":     {widened + "t t c:c c:d c:e c:f", "a b c d"},
		"one is trying all the time":      {widened + "c:c t t c:d c:e c:f c:g", "a b c d e f"},
		"the last ACK was late":           {widened + "c:c d:c:1 t t k:c:1 c:d c:e c:f c:g", "a b c d e f g"},
		"one that tried has left":         {widened + "t c:c l:c t c:d c:e c:f", "a b c d e f"},
		"an ACK before Done says nothing": {"j:n/a j:n/b j:n/c c:a c:b c:c k:a:5", "a b"},
	} {
		if got := script(Budget{Trial: 2, Slow: time.Hour}, c.events); got != c.want {
			t.Errorf("%s: granted %q, want %q", name, got, c.want)
		}
	}
}

// A config lane that waits gets every fifth turn, however busy the endpoint lane is.
func TestConfigDoesNotStarve(t *testing.T) {
	q := NewQueue[string](Budget{Streams: 1})
	var now time.Time
	for _, s := range []string{"e1", "e2", "c"} {
		q.Step(now, Event[string]{Op: Join, Stream: s})
	}
	turn := q.Step(now, Event[string]{Op: Mark, Stream: "e1"})[0].Stream
	q.Step(now, Event[string]{Op: Mark, Stream: "c", Lane: Config})
	q.Step(now, Event[string]{Op: Mark, Stream: "e2"})
	for i := range 10 {
		q.Step(now, Event[string]{Op: Mark, Stream: turn}) // endpoints of it changed again
		turn = q.Step(now, Event[string]{Op: Done, Stream: turn})[0].Stream
		if turn == "c" {
			if i != patience {
				t.Errorf("config had its turn after %d others", i)
			}
			return
		}
	}
	t.Error("config never had its turn")
}

// Random events: never more in flight than the budget, nobody is granted twice at once, and everybody who was marked is
// granted in the end.
func TestQueueRandom(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := Budget{Streams: 1 + r.IntN(3), Bytes: 20, Trial: 1 + r.IntN(4)}
		c := &chaos{t: t, seed: seed, q: NewQueue[int](b), streams: b.Streams, now: time.Unix(0, 0),
			granted: map[int]bool{}, owing: map[int]int{}, due: map[int]bool{}}
		for s := range 8 {
			c.step(Event[int]{Op: Join, Stream: s, Namespace: fmt.Sprint(s % 3)})
		}
		for range 300 {
			c.any(r)
		}
		for range 20 {
			for s := range 8 {
				c.done(s, 1)
				c.ack(s)
			}
		}
		q := c.q
		if len(c.due) > 0 || q.Waiting(Endpoints)+q.Waiting(Answers)+q.Waiting(Config) > 0 || q.bytes != 0 || q.trial.trying != 0 || q.charged.Len() != 0 || q.beside.slots.Len() != 0 {
			t.Fatalf("seed %d: still due %v, bytes %d, charged %d", seed, c.due, q.bytes, q.charged.Len())
		}
	}
}

// chaos is eight streams of a queue, and what is known of each.
type chaos struct {
	t       *testing.T
	seed    uint64
	q       *Queue[int]
	streams int // the budget
	now     time.Time
	granted map[int]bool
	owing   map[int]int  // bytes without acknowledgement
	due     map[int]bool // marked and not granted since
}

// step is one event, and the check of what was granted.
func (c *chaos) step(e Event[int]) {
	for _, g := range c.q.Step(c.now, e) {
		if c.granted[g.Stream] {
			c.t.Fatalf("seed %d: %d is granted twice", c.seed, g.Stream)
		}
		c.granted[g.Stream] = true
		delete(c.due, g.Stream)
	}
	if len(c.granted) > c.streams {
		c.t.Fatalf("seed %d: %d in flight", c.seed, len(c.granted))
	}
}

func (c *chaos) done(s, bytes int) {
	if c.granted[s] {
		delete(c.granted, s)
		c.owing[s] += bytes
		c.step(Event[int]{Op: Done, Stream: s, Bytes: bytes})
	}
}

func (c *chaos) ack(s int) {
	n := c.owing[s]
	c.owing[s] = 0
	c.step(Event[int]{Op: Ack, Stream: s, Bytes: n})
}

// any is an event of any stream.
func (c *chaos) any(r *rand.Rand) {
	s := r.IntN(8)
	switch r.IntN(6) {
	case 5:
		c.step(Event[int]{Op: Refuse, Stream: s})
	case 0, 1:
		c.due[s] = true
		c.step(Event[int]{Op: Mark, Stream: s, Lane: Lane(r.IntN(int(NumLanes)))})
	case 2:
		c.done(s, r.IntN(9))
	case 3:
		c.ack(s)
	case 4:
		c.now = c.now.Add(time.Duration(r.IntN(700)) * time.Millisecond)
		c.step(Event[int]{Op: Tick})
	}
}

// A change for many: it doubles with each round of acknowledgements, and a refusal of the first keeps it from the rest.
func TestChangesGoToAFewFirst(t *testing.T) {
	const streams = 1000
	wave := func(refuse bool) (rounds []int) {
		q := NewQueue[int](Budget{Streams: streams})
		now := time.Unix(100, 0)
		var turn []Grant[int]
		for s := range streams {
			q.Step(now, Event[int]{Op: Join, Stream: s, Namespace: "n"})
			turn = append(turn, q.Step(now, Event[int]{Op: Mark, Stream: s, Lane: Config})...)
		}
		for range 12 {
			rounds = append(rounds, len(turn))
			var next []Grant[int]
			for _, g := range turn {
				next = append(next, q.Step(now, Event[int]{Op: Done, Stream: g.Stream, Bytes: 9})...)
			}
			for _, g := range turn {
				next = append(next, q.Step(now, Event[int]{Op: Ack, Stream: g.Stream, Bytes: 9})...)
				if refuse {
					next = append(next, q.Step(now, Event[int]{Op: Refuse, Stream: g.Stream})...)
				}
			}
			turn = next
		}
		return rounds
	}
	if got := wave(false); !slices.Equal(got[:7], []int{8, 16, 32, 64, 128, 256, 496}) {
		t.Errorf("rounds of %v", got)
	}
	if got := wave(true); slices.Max(got) > 16 {
		t.Errorf("refused by everybody, and still rounds of %v", got)
	}
}
