package scene

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/loadtest/report"
	"navarch.io/navarch/push/xds"
)

// traffic returns counters of responses and requests, in one type.
func traffic(responses, requests uint64) map[string]proxy.TypeStats {
	return map[string]proxy.TypeStats{xds.Cluster.String(): {Responses: responses, Acks: responses, Requests: requests}}
}

// Quiet begins a second after the last message, ACK or join, whichever is the latest. If it never begins, the result
// reports that.
func TestQuiet(t *testing.T) {
	broken := errors.New("no figures")
	for name, c := range map[string]struct {
		stats func(time.Duration) (proxy.Stats, error)
		want  time.Duration
		note  string
		err   error
	}{
		"at once": {func(time.Duration) (proxy.Stats, error) {
			return proxy.Stats{Proxies: 3, Joined: 3, Types: traffic(7, 9)}, nil
		}, time.Second, "", nil},
		"an ACK is late": {func(since time.Duration) (proxy.Stats, error) {
			s := proxy.Stats{Proxies: 3, Joined: 3, Types: traffic(7, 9)}
			if since < 5*time.Second {
				s.Unacked = 1
			}
			return s, nil
		}, 6 * time.Second, "", nil},
		"answers still come": {func(since time.Duration) (proxy.Stats, error) {
			return proxy.Stats{Proxies: 3, Joined: 3, Types: traffic(uint64(min(since, 5*time.Second)/quietStep), 9)}, nil
		}, 6 * time.Second, "", nil},
		"proxies still ask": {func(since time.Duration) (proxy.Stats, error) {
			return proxy.Stats{Proxies: 3, Joined: 3, Types: traffic(7, uint64(min(since, 5*time.Second)/(3*quietStep)))}, nil
		}, 5500 * time.Millisecond, "", nil},
		"one joins late": {func(since time.Duration) (proxy.Stats, error) {
			s := proxy.Stats{Proxies: 3, Joined: 3, Types: traffic(7, 9)}
			if since < 5*time.Second {
				s.Joined--
			}
			return s, nil
		}, 6 * time.Second, "", nil},
		"never": {func(since time.Duration) (proxy.Stats, error) {
			return proxy.Stats{Proxies: 3, Joined: 2, Unacked: 4, Types: traffic(uint64(since/quietStep), 9)}, nil
		}, quietLimit, "2 of 3 had joined, 4 responses were not acknowledged, 1 came in the last 250ms", nil},
		"not known": {func(time.Duration) (proxy.Stats, error) { return proxy.Stats{}, broken }, 0, "", broken},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{ctx: t.Context(), result: &reportScenario{}, fleet: &scripted{stats: c.stats, began: time.Now()}}
			began := time.Now()
			err := s.quiet()
			took := time.Since(began)
			if !errors.Is(err, c.err) || took < c.want-quietStep || took > c.want+quietStep {
				t.Errorf("%s: quiet after %v, want %v; %v", name, took, c.want, err)
			}
			if notes := strings.Join(s.result.Notes, "; "); (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) {
				t.Errorf("%s: the result says %q", name, notes)
			}
		})
	}
}

// No scenario edits, reconnects or measures anything while proxies are still sent their first answers.
func TestScenariosBeginInQuiet(t *testing.T) {
	for _, sc := range All() {
		if sc.Envoy { // it has no fleet
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			f := &scripted{began: time.Now(), stats: func(since time.Duration) (proxy.Stats, error) {
				return proxy.Stats{Proxies: 8, Joined: 8, Types: traffic(uint64(since/quietStep), 9)}, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			s := small(t, f)
			s.ctx, s.scenario, s.starter, s.servers = ctx, sc, &starter{}, []*Server{{Name: "a", cmd: &exec.Cmd{}}}
			err := sc.run(s)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "quiet") || f.done() != "add" {
				t.Errorf("%s: the fleet was asked to %s; %v", sc.Name, f.done(), err)
			}
		})
	}
}

// The completed part of a phase is computed from its schedule, from the number of its edits, or else from the number of
// joined proxies.
func TestShareOfAPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		joined := func(time.Duration) (proxy.Stats, error) { return proxy.Stats{Joined: 4}, nil }
		s := &stage{ctx: t.Context(), result: &reportScenario{}, fleet: &scripted{stats: joined, began: time.Now()}, joining: 10}
		s.Repeats = 3
		share := func() float64 {
			var v Progress
			s.look(&v, &report.Series{}, 0)
			return v.Share
		}
		s.enter("proxies join")
		if got := share(); got != .4 {
			t.Errorf("%v, and 4 of 10 have joined", got)
		}
		var shares []float64
		if err := s.schedule(time.Second, 4*time.Second, func(int, time.Time) error {
			shares = append(shares, share())
			return nil
		}); err != nil || !slices.Equal(shares, []float64{0, .25, .5, .75}) {
			t.Errorf("of a schedule %v, %v", shares, err)
		}
		shares = nil
		if err := s.repeat("edits", &effects{}, func(int) error { shares = append(shares, share()); return nil }); err != nil || !slices.Equal(shares, []float64{0, .25, .5, .75}) {
			t.Errorf("of edits %v, %v", shares, err)
		}
		if s.enter("another"); share() != .4 {
			t.Errorf("%v in the phase after", share())
		}
	})
}
