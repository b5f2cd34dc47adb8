package fanout

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// script runs events and returns the granted streams in order; "!" after a stream means that only its urgent resources
// may be sent. Events: "j:ns/a" joins, "g:ns/a" joins as a gateway, "l:a" leaves; "e:a", "a:a" and "c:a" mark a in a
// lane, "n:a:7" marks a for plan 7; "d:a:9" ends a's turn after 9 bytes, "k:a:9" acknowledges 9 bytes; "y:a:7" accepts
// plan 7, "s:a:7" reports that plan 7 has no resource for a, "r:a:7" refuses plan 7, "r:a:7:x" does so with identity x;
// "t" advances the time by 1 s, "w" by 10 ms, "p:5" reports that goroutines waited for 0.5 ms.
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
		case "r", "y", "s":
			e.Op = map[string]Op{"r": Refuse, "y": Accept, "s": Skip}[part[0]]
			e.Plan, e.By = int64(e.Bytes), part[len(part)-1]
			if len(part) == 3 {
				e.By = e.Stream
			}
		case "n":
			e.Op, e.Lane, e.Plan = Mark, Config, int64(e.Bytes)
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
	one := Budget{Streams: 1}
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
		"what becomes new waits as such":      {Budget{Streams: 1, Rollout: 1}, "j:n/x j:n/a n:x:1 c:a n:a:1 c:a d:x:1", "x"},
		"also in the middle of a turn":        {Budget{Streams: 1, Rollout: 1}, "j:n/x j:n/a n:x:1 e:a d:x:1 c:a n:a:1 c:a d:a:1", "x a"},
		"leaving returns bytes":               {Budget{Bytes: 10}, "j:n/a j:n/b c:a d:a:10 c:b l:a", "a b"},
	} {
		if got := script(c.budget, c.events); got != c.want {
			t.Errorf("%s: granted %q, want %q", name, got, c.want)
		}
	}
}

// A waiting config lane receives every fifth turn, however busy the endpoint lane is.
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
		q.Step(now, Event[string]{Op: Mark, Stream: turn}) // its endpoints changed again
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

// Random events never put more streams in flight than the budget, never grant a stream that has a turn already, and
// every marked stream is granted at the end.
func TestQueueRandom(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := Budget{Streams: 1 + r.IntN(3), Bytes: 20, Rollout: 1 + r.IntN(4)}
		c := &chaos{t: t, seed: seed, q: NewQueue[int](b), streams: b.Streams, now: time.Unix(0, 0),
			granted: map[int]bool{}, unacked: map[int]int{}, due: map[int]bool{}}
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
				c.step(Event[int]{Op: Skip, Stream: s, Plan: c.plan})
			}
			c.now = c.now.Add(refusalBackoff)
		}
		q := c.q
		if len(c.due) > 0 || q.Waiting(Endpoints)+q.Waiting(Answers)+q.Waiting(Config) > 0 || q.bytes != 0 || q.rollout.slots.count() != 0 || q.charged.Len() != 0 || q.window.slots.count() != 0 {
			t.Fatalf("seed %d: still due %v, bytes %d, charged %d", seed, c.due, q.bytes, q.charged.Len())
		}
	}
}

// chaos is a queue with eight streams, and the expected state of each.
type chaos struct {
	t       *testing.T
	seed    uint64
	q       *Queue[int]
	streams int // the budget of concurrent streams
	now     time.Time
	granted map[int]bool
	unacked map[int]int  // bytes without acknowledgement
	due     map[int]bool // marked and not granted since then
	plan    int64
}

// step applies one event and checks which streams it grants.
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
		c.unacked[s] += bytes
		c.step(Event[int]{Op: Done, Stream: s, Bytes: bytes})
	}
}

func (c *chaos) ack(s int) {
	n := c.unacked[s]
	c.unacked[s] = 0
	c.step(Event[int]{Op: Ack, Stream: s, Bytes: n})
}

// any applies a random event to a random stream.
func (c *chaos) any(r *rand.Rand) {
	s := r.IntN(8)
	switch r.IntN(8) {
	case 7:
		c.due[s], c.plan = true, c.plan+int64(r.IntN(2))
		c.step(Event[int]{Op: Mark, Stream: s, Lane: Config, Plan: c.plan})
	case 6:
		c.step(Event[int]{Op: Accept + Op(r.IntN(2)), Stream: s, Plan: c.plan - int64(r.IntN(2))})
	case 5:
		c.step(Event[int]{Op: Refuse, Stream: s, Plan: c.plan - int64(r.IntN(2)), By: fmt.Sprint(s % 3)})
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
