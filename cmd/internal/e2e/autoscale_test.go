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

// value returns one sample of /metrics; NaN if it is absent.
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

// pods returns each metric of each replica, as the autoscaler reads them.
func (f *fleetOf) pods(targets []target) [][]float64 {
	metrics := make([][]float64, len(targets))
	for _, d := range f.replicas() {
		ready := d.ready() == nil
		for i := range targets {
			v := math.NaN()
			if ready {
				v = d.value(targets[i].metric)
			}
			metrics[i] = append(metrics[i], v)
		}
	}
	return metrics
}

// scale starts replicas, or stops the newest ones.
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

// follow applies the autoscaler's decision every half second. It ends when the number was unchanged for 10 s, all
// proxies are at their owners, and the autoscaler's decision was constant for its window. step is called each time. It
// returns the numbers of replicas from the first one on.
func (f *fleetOf) follow(a *autoscaler, c *crowd, step func()) []int {
	f.t.Helper()
	history, calm := []int{len(f.replicas())}, 0
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(3 * patience); calm < 20 || !a.content(len(f.replicas())); <-tick.C {
		metrics := f.pods(a.targets)
		if time.Now().After(end) {
			f.t.Fatalf("%d proxies: not settled, %v, %v, %v", len(c.agents), history, metrics, c.home())
		}
		if want := a.step(time.Now(), metrics); want != len(f.replicas()) {
			f.t.Logf("%d replicas: %v", want, metrics)
			history = append(history, want)
			f.scale(want)
			calm = 0
		}
		if calm++; c.home() != nil {
			calm = 0
		}
		step()
	}
	return history
}

// risesOnce reports whether numbers first only rise and then only fall.
func risesOnce(numbers []int) bool {
	top := slices.Index(numbers, slices.Max(numbers))
	down := slices.Clone(numbers[top:])
	slices.Reverse(down)
	return slices.IsSorted(numbers[:top+1]) && slices.IsSorted(down)
}

// An autoscaler on navarch_proxies follows a load up and down, in one step each way without oscillation, although
// replicas need time to start and stop, and proxies to move.
func TestAutoscalingSettles(t *testing.T) {
	parallel(t)
	f := startFleet(t, 1)
	c := f.gather()
	scaler := &autoscaler{targets: []target{{"navarch_proxies", 24}}, tolerance: .1, window: 6 * time.Second, least: 1, most: 6}
	for _, load := range []struct{ proxies, replicas int }{{20, 1}, {70, 3}, {40, 2}} {
		if load.proxies < len(c.agents) {
			c.shrink(load.proxies)
		} else {
			c.grow(load.proxies, true, f.addresses)
		}
		history := f.follow(scaler, c, func() {})
		oneWay := slices.Clone(history)
		if history[0] > load.replicas {
			slices.Reverse(oneWay)
		}
		if got := len(f.replicas()); got != load.replicas || len(history) > 3 || !slices.IsSorted(oneWay) {
			t.Errorf("%d proxies: replicas %v, want %d, at most two changes, and one way only", load.proxies, history, load.replicas)
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
	c.sum()
}

// An autoscaler on all three signals. 75 further proxies connect at once to a replica with 40, which admits a few per
// second. By the delay of its queue the autoscaler starts the maximum of replicas, more than the proxies alone require.
// After all proxies are admitted, the number of replicas is the one that the proxies require. In all, the number rises
// once and falls once.
//
// The test does not show three things. More replicas do not shorten an existing queue, because waiting proxies stay
// where they are. The push lag does not request replicas here: on one machine more replicas do not reduce it, so its
// target is never reached; without a value the number of replicas could not fall. A fleet does not begin with a queue:
// the leader knows the load of namespaces with at least one admitted proxy, so each has one here.
func TestAutoscalingSettlesOnAllSignals(t *testing.T) {
	parallel(t)
	const before, proxies, rate, alone, most = 40, 115, 4, 3, 4
	f := startFleet(t, 0)
	f.env, f.flags = []string{fmt.Sprintf("PILOT_MAX_REQUESTS_PER_SECOND=%d", rate)}, []string{"--shutdown-duration", "5s"}
	first := f.add()
	c := f.gather()
	c.grow(before, true, f.addresses)
	eventually(t, patience, c.home)
	eventually(t, patience, func() error { return first.metric(fmt.Sprintf("navarch_fleet_proxies_per_replica %d", before)) })

	// The window is longer than the wait of proxies when the delay no longer requires more replicas than the proxies do
	// (24, at 4 per second), and longer than a replica's shutdown: moving proxies are in no replica's count.
	scaler := &autoscaler{targets: []target{{"navarch_proxies", 40}, {"navarch_join_delay_seconds", 2}, {"navarch_push_lag_seconds", 60}},
		tolerance: .1, window: 10 * time.Second, least: 1, most: most}
	steps := 0
	edit := func() {
		if steps++; steps%2 == 0 { // once a second
			write(t, f.dir, "pace.yaml", fmt.Sprintf(connectWithin, steps))
		}
	}
	c.grow(proxies, true, f.addresses)
	eventually(t, patience, func() error {
		if in, wait := first.value("navarch_proxies"), first.value("navarch_joins_waiting"); !(in+wait > proxies-5) {
			return fmt.Errorf("%v of %d are in, %v wait", in, proxies, wait)
		}
		return nil
	})
	history := f.follow(scaler, c, edit)
	t.Logf("replicas: %v; %d edits meanwhile", history, steps/2)
	if top := slices.Max(history); top <= alone || top > most {
		t.Errorf("replicas %v: at most %d, want more than the %d that the proxies alone ask for, and no more than %d", history, top, alone, most)
	}
	if got := len(f.replicas()); got != alone || !risesOnce(history) {
		t.Errorf("replicas %v, want %d in the end, first only more and then only fewer", history, alone)
	}

	const cluster = "outbound|80||web.shop.svc.cluster.local"
	old := c.versions(cluster)
	steps = steps | 1
	edit()
	eventually(t, patience, func() error { // and all proxies are served
		now := c.versions(cluster)
		for v, n := range now {
			if old[v] > 0 || n != proxies {
				return fmt.Errorf("versions of %s: %v, before the last edit %v", cluster, now, old)
			}
		}
		return c.home()
	})
	c.sum()
}

// connectWithin is the configuration of an edit that is sent to all proxies.
const connectWithin = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, trafficPolicy: {connectionPool: {tcp: {connectTimeout: %ds}}}}
`

// versions counts the agents that hold each version of a cluster.
func (c *crowd) versions(cluster string) map[string]int {
	count := map[string]int{}
	for _, a := range c.agents {
		a.mu.Lock()
		count[a.held[cluster]]++
		a.mu.Unlock()
	}
	return count
}
