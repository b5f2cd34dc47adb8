package main

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/obs"
)

func tally(t *testing.T, c prometheus.Counter) int {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetCounter().GetValue())
}

// A stream that was closed because its client is too slow is counted, by what was not done in time; istiod's metric is of the
// one that it has.
func TestSlowClientsAreCounted(t *testing.T) {
	h := hooks(quiet, &commits{}, newChangeLog(quiet), nil)
	written, acknowledged := obs.TooSlow.WithLabelValues("written"), obs.TooSlow.WithLabelValues("acknowledged")
	for _, c := range []struct {
		write                          bool
		istiods, written, acknowledged int
	}{{true, 1, 1, 0}, {false, 0, 0, 1}} {
		was := [...]int{tally(t, obs.WriteTimeout), tally(t, written), tally(t, acknowledged)}
		h.Timeout(c.write)
		if is := [...]int{tally(t, obs.WriteTimeout), tally(t, written), tally(t, acknowledged)}; is != [...]int{was[0] + c.istiods, was[1] + c.written, was[2] + c.acknowledged} {
			t.Errorf("write %v: %v, then %v", c.write, was, is)
		}
	}
}

// So is one that takes what it is sent and never acknowledges it.
func TestSilentClientIsCounted(t *testing.T) {
	s := serve.New(serve.Config{Planner: oneCluster(), AckDeadline: time.Second, Log: quiet, Hooks: hooks(quiet, &commits{}, newChangeLog(quiet), nil)})
	acknowledged := obs.TooSlow.WithLabelValues("acknowledged")
	was := tally(t, acknowledged)
	stream := subscribe(t, dialed(t, s))
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	soon(t, "it is counted", func() bool { return tally(t, acknowledged) == was+1 })
}
