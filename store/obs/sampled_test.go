package obs

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/envoytest"
)

// line is the part of a log line that a test reads.
type line struct {
	Msg, Cause, Peer, Error string
	Suppressed              int
}

func linesOf(t *testing.T, log *envoytest.Output) (all []line) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var one line
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

func kept(s *Sampled) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.causes)
}

func newSampled() (*Sampled, *envoytest.Output) {
	log := &envoytest.Output{}
	return NewSampled(slog.New(slog.NewJSONHandler(log, nil))), log
}

// The first of each cause is written at once, the others once in an interval, and nothing is lost from the count; a
// cause that rested is new.
// Promise: security-connections.md#places-and-time
func TestSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newSampled()
		events := map[string]int{}
		warn := func(cause, peer string) {
			events[cause]++
			s.Warn("stream refused", cause, KeyPeer, peer, KeyError, errors.New("no "+cause))
		}
		for i := range 2000 {
			warn("token", strconv.Itoa(i))
			if i == 1000 {
				warn("node", "other")
			}
		}
		if got := linesOf(t, log); len(got) != 2 || got[0] != (line{Msg: "stream refused", Cause: "token", Peer: "0", Error: "no token"}) ||
			got[1] != (line{Msg: "stream refused", Cause: "node", Peer: "other", Error: "no node"}) {
			t.Fatalf("at once: %+v", got)
		}
		time.Sleep(SampleInterval + time.Second)
		if got := linesOf(t, log); len(got) != 3 || got[2] != (line{"stream refused", "token", "1", "no token", 1998}) {
			t.Fatalf("after an interval: %+v", got[2:])
		}
		warn("token", "again") // within the second interval
		warn("node", "again")  // it had rested
		if got := linesOf(t, log); len(got) != 4 || got[3] != (line{Msg: "stream refused", Cause: "node", Peer: "again", Error: "no node"}) {
			t.Fatalf("after a rest: %+v", got[3:])
		}
		time.Sleep(3 * SampleInterval)
		written := map[string]int{}
		for _, one := range linesOf(t, log) {
			written[one.Cause] += 1 + one.Suppressed
		}
		if len(written) != 2 || written["token"] != events["token"] || written["node"] != events["node"] {
			t.Errorf("the lines count %v, there were %v", written, events)
		}
		if n := kept(s); n != 0 {
			t.Errorf("%d causes are kept after a rest", n)
		}
	})
}

// The number of causes and texts is bounded, and texts that a client may overwrite later are copied.
func TestSampledIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newSampled()
		for i := range 10 * maxSampled {
			s.Warn("refused", strconv.Itoa(i), KeyPeer, strings.Repeat("é", maxSampledText))
		}
		if n := kept(s); n > maxSampled+1 {
			t.Errorf("%d causes are kept", n)
		}
		time.Sleep(2*SampleInterval + time.Second)
		total := 0
		for _, one := range linesOf(t, log) {
			total += 1 + one.Suppressed
			if n := len(one.Peer); n == 0 || n > maxSampledText {
				t.Fatalf("a text of %d bytes", n)
			}
		}
		if lines := len(linesOf(t, log)); total != 10*maxSampled || lines > maxSampled+2 {
			t.Errorf("%d of %d are counted, in %d lines", total, 10*maxSampled, lines)
		}
	})
}
