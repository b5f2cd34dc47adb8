package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// While endpoints change, configuration is sent to a limited number of streams at once: the limit falls while
// goroutines wait for a processor, and rises while they do not.
func TestConcurrencyWindow(t *testing.T) {
	const streams = 100
	var joins, marks strings.Builder
	for i := range streams {
		fmt.Fprintf(&joins, "j:n/%d ", i)
		fmt.Fprintf(&marks, " c:%d", i)
	}
	joins.WriteString("j:n/e ")
	all := Budget{Streams: 1000, Rollout: 1000, Slow: time.Hour}
	for name, c := range map[string]struct {
		events string
		want   int // streams that receive configuration at once
	}{
		"all of them alone":            {"", streams},
		"few beside endpoints":         {"e:e", 32},
		"answers are no endpoints":     {"a:e", streams},
		"fewer where goroutines wait":  {"e:e p:21", 24},
		"but some":                     {"e:e" + strings.Repeat(" p:99", 20), 1},
		"more where none waits":        {"e:e p:1 p:0", 42},
		"as many where some wait":      {"e:e p:15", 32},
		"as it was after a short calm": {"e:e p:21 t t t", 24},
		"all of them after a long one": {"e:e p:21 t t t t t t t t t t t", streams},
		"as it was in the next change": {"e:e p:21 t t t t t t t t t t t e:e", 24},
	} {
		got := script(all, joins.String()+c.events+marks.String())
		if n := len(strings.Fields(strings.ReplaceAll(got, "e", ""))); n != c.want {
			t.Errorf("%s: %d at once, want %d", name, n, c.want)
		}
	}

	off := all
	off.WindowOff = true
	if n := len(strings.Fields(strings.ReplaceAll(script(off, joins.String()+"e:e p:21"+marks.String()), "e", ""))); n != streams {
		t.Errorf("a window that is off: %d at once, want %d", n, streams)
	}

	begun := joins.String() + "e:e"
	for i := range 33 {
		begun += fmt.Sprintf(" c:%d", i)
		if i < 31 {
			begun += fmt.Sprintf(" d:%d:1", i)
		}
	}
	before := script(all, begun)
	pressed := strings.Repeat(" p:99", 14)
	for name, c := range map[string]struct{ events, want string }{
		"nothing happens":                    {"", ""},
		"an ACK lets the next go":            {" k:5:1", " 32"},
		"who leaves gives it back":           {" l:5", " 32"},
		"so does one in its turn":            {" l:31", " 32"},
		"nothing to send does":               {" d:31:0", " 32"},
		"a turn that is over does not":       {" d:31:1", ""},
		"what is long on its way":            {" w", " 32"},
		"but for one that has its turn":      {" k:0:1 l:1 c:40 c:41 w d:31:1 c:42 c:43", " 32 40 41 42 43"},
		"and one that has just had it waits": {" d:31:1" + pressed + " w d:32:1 c:40 w", " 32 40"},
		"much at the smallest window rests":  {" d:31:1" + pressed + " w c:40 d:32:1000000 k:32:1000000", " 32"},
		"and for as long as it was much":     {" d:31:1" + pressed + " w c:40 d:32:1000000 k:32:1000000 w w", " 32 40"},
		"no longer than endpoints change":    {" d:31:1" + pressed + " w c:40 d:32:999000000 k:32:999000000" + strings.Repeat(" t", 11), " 32 40"},
		"at a wider one it does not":         {" d:31:1" + pressed + " p:0 w c:40 c:41 d:32:1000000 k:32:1000000 d:40:1 k:40:1", " 32 40 41"},
	} {
		if got := script(all, begun+c.events); got != before+c.want {
			t.Errorf("%s: granted %q, want %q", name, strings.TrimPrefix(got, before), c.want)
		}
	}
}

// When a stream does not acknowledge, its place becomes free by time alone, and the queue reports when.
func TestLongWayEndsByTime(t *testing.T) {
	q := NewQueue[string](Budget{Rollout: 1000, Slow: time.Hour})
	now := time.Unix(0, 0)
	q.window.size = 1
	for _, s := range []string{"a", "b", "e"} {
		q.Step(now, Event[string]{Op: Join, Stream: s})
	}
	q.Step(now, Event[string]{Op: Mark, Stream: "e", Lane: Endpoints})
	q.Step(now, Event[string]{Op: Mark, Stream: "a", Lane: Config})
	q.Step(now, Event[string]{Op: Mark, Stream: "b", Lane: Config})
	if at, ok := q.Next(); ok {
		t.Fatalf("%v, and nothing was sent", at)
	}
	q.Step(now, Event[string]{Op: Done, Stream: "a", Bytes: 5})
	at, ok := q.Next()
	if !ok || at.Sub(now) != longWay {
		t.Fatalf("next %v %v, want %v", at.Sub(now), ok, longWay)
	}
	if got := q.Step(at, Event[string]{Op: Tick}); len(got) != 1 || got[0].Stream != "b" {
		t.Errorf("granted %v", got)
	}

	q.Step(at, Event[string]{Op: Mark, Stream: "a", Lane: Config})
	q.Step(at, Event[string]{Op: Done, Stream: "b", Bytes: leastRate / 100})
	if got := q.Step(at, Event[string]{Op: Ack, Stream: "b", Bytes: leastRate / 100}); len(got) != 0 {
		t.Errorf("granted %v right after much was sent", got)
	}
	rested, ok := q.Next()
	if rest := rested.Sub(at); !ok || rest < 9*time.Millisecond || rest > 11*time.Millisecond {
		t.Fatalf("next after %v %v, want some 10 ms", rest, ok)
	}
	if got := q.Step(rested, Event[string]{Op: Tick}); len(got) != 1 || got[0].Stream != "a" {
		t.Errorf("granted %v", got)
	}
	q.Step(rested, Event[string]{Op: Mark, Stream: "b", Lane: Config})
	if at, ok := q.Next(); ok && at.Sub(rested) < time.Minute {
		t.Errorf("%v, and only a turn is waited for", at)
	}
}
