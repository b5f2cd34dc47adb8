package e2e

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// autoscaler is the published algorithm of Kubernetes' HorizontalPodAutoscaler for a metric of type Pods with an average
// value (https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/): no clock, no cluster.
type autoscaler struct {
	target     float64       // average of the metric, for each pod
	tolerance  float64       // around a ratio of 1 within which nothing is done; 0.1 by default
	window     time.Duration // scaling down takes the greatest recommendation of it; 300 s by default
	least      int
	most       int
	recommends []recommendation
}

type recommendation struct {
	at       time.Time
	replicas int
}

// step sees the metric of each pod, NaN where a pod has none (it is not ready), and says how many there should be.
func (a *autoscaler) step(now time.Time, pods []float64) int {
	current, sum, have := len(pods), 0., 0
	for _, v := range pods {
		if !math.IsNaN(v) {
			sum, have = sum+v, have+1
		}
	}
	want := current
	if have > 0 {
		ratio := sum / float64(have) / a.target
		if missing := current - have; missing > 0 { // they count as idle when it would grow, as at the target when it would shrink
			if ratio > 1 {
				ratio = max(1, sum/float64(current)/a.target)
			} else {
				ratio = min(1, (sum+float64(missing)*a.target)/float64(current)/a.target)
			}
		}
		if math.Abs(ratio-1) > a.tolerance {
			want = int(math.Ceil(float64(current) * ratio))
		}
	}
	want = min(max(want, a.least), a.most)
	a.recommends = append(a.recommends, recommendation{now, want})
	a.recommends = slices.DeleteFunc(a.recommends, func(r recommendation) bool { return now.Sub(r.at) > a.window })
	for _, r := range a.recommends {
		if r.replicas > want {
			want = min(r.replicas, max(current, want)) // it does not grow by what was recommended before
		}
	}
	return want
}

// The formula by the examples of its description.
func TestAutoscalerFormula(t *testing.T) {
	none := math.NaN()
	start := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		before []recommendation
		pods   []float64
		want   int
	}{
		"twice the target doubles":              {nil, []float64{200, 200}, 4},
		"half of it halves":                     {nil, []float64{50, 50, 50, 50}, 2},
		"within the tolerance":                  {nil, []float64{109, 109}, 2},
		"just beyond":                           {nil, []float64{111, 111}, 3},
		"a pod that is not ready does not grow": {nil, []float64{190, none}, 2},
		"nor does it shrink":                    {nil, []float64{50, none}, 2},
		"not all are ready, and more are due":   {nil, []float64{400, none}, 4},
		"nobody is ready":                       {nil, []float64{none, none}, 2},
		"it shrinks when the window is over":    {[]recommendation{{start.Add(-11 * time.Second), 4}}, []float64{50, 50, 50, 50}, 2},
		"not before":                            {[]recommendation{{start.Add(-9 * time.Second), 4}}, []float64{50, 50, 50, 50}, 4},
		"but as far as was recommended":         {[]recommendation{{start.Add(-9 * time.Second), 3}}, []float64{50, 50, 50, 50}, 3},
		"bounds":                                {nil, []float64{9000}, 5},
	} {
		a := &autoscaler{target: 100, tolerance: .1, window: 10 * time.Second, least: 1, most: 5, recommends: c.before}
		if got := a.step(start, c.pods); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// value is one sample of /metrics; NaN where it cannot be had.
func (d *daemon) value(name string) float64 {
	page, err := get(d.monitoring, "/metrics")
	if err != nil {
		return math.NaN()
	}
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
				return v
			}
		}
	}
	return math.NaN()
}

// pods is the metric of each replica, as the autoscaler sees it.
func (f *fleetOf) pods() (values []float64) {
	for _, d := range f.replicas() {
		v := math.NaN()
		if d.ready() == nil {
			v = d.value("navarch_proxies")
		}
		values = append(values, v)
	}
	return values
}

// scale starts replicas, or asks the newest to stop.
func (f *fleetOf) scale(to int) {
	for len(f.replicas()) < to {
		f.add()
	}
	for n := len(f.replicas()); n > to; n-- {
		if err := f.drop(n - 1).cmd.Process.Signal(syscall.SIGTERM); err != nil {
			f.t.Error(err)
		}
	}
}

// An autoscaler on navarch_proxies follows a load up and down, in one step each way and without going back and forth, although
// replicas take time to come, proxies time to move, and leaving replicas time to go.
func TestAutoscalingSettles(t *testing.T) {
	f := startFleet(t, 1)
	c := gather(t)
	scaler := &autoscaler{target: 24, tolerance: .1, window: 6 * time.Second, least: 1, most: 6}
	var history []int
	for _, load := range []struct{ proxies, replicas int }{{20, 1}, {70, 3}, {40, 2}} {
		if load.proxies < len(c.agents) {
			c.shrink(load.proxies)
		} else {
			c.grow(load.proxies, true, f.addresses)
		}
		was, turns, calm := len(f.replicas()), 0, 0
		up := load.replicas > was
		tick := time.NewTicker(500 * time.Millisecond)
		for end := time.Now().Add(3 * patience); calm < 20; <-tick.C { // 10 s without a change, and everybody at home
			if time.Now().After(end) {
				t.Fatalf("%d proxies: not settled, %v, %v, %v", load.proxies, history, f.pods(), c.home())
			}
			want := scaler.step(time.Now(), f.pods())
			if now := len(f.replicas()); want != now {
				history = append(history, want)
				if turns++; want > now != up {
					t.Errorf("%d proxies: %d replicas after %d", load.proxies, want, now)
				}
				f.scale(want)
				calm = 0
			}
			if calm++; c.home() != nil {
				calm = 0
			}
		}
		tick.Stop()
		if got := len(f.replicas()); got != load.replicas || turns > 2 {
			t.Errorf("%d proxies: %d replicas after %d changes, want %d", load.proxies, got, turns, load.replicas)
		}
		mean := fmt.Sprintf("%g", float64(load.proxies)/float64(load.replicas))
		for _, d := range f.replicas() {
			eventually(t, patience, func() error {
				if got := d.value("navarch_fleet_proxies_per_replica"); fmt.Sprintf("%g", got) != mean {
					return fmt.Errorf("navarch_fleet_proxies_per_replica %g, want %s", got, mean)
				}
				return nil
			})
		}
	}
	t.Logf("replicas: %v", history)
	c.sum()
}
