package e2e

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// Fault 12, admission: all proxies of a killed replica connect to one that admits two per second. It never admits more.
// The others wait in line, because each refusal would cost a handshake per retry. Admitted proxies receive nothing new.
func TestFaultReconnectsArePaced(t *testing.T) {
	parallel(t)
	const proxies, rate, burst = 30, 2, 2
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	start(t, "--roles=ingest", "--config-dir", townFolder(t, 10), store)
	victim := xdsReplica(t, store)
	narrow := startProgram(t, navarchd(t), []string{fmt.Sprintf("PILOT_MAX_REQUESTS_PER_SECOND=%d", rate)}, mtls(t, "--roles=xds", store)...)
	for _, d := range []*daemon{victim, narrow} {
		eventually(t, patience, d.ready)
	}
	balancer := connect(t, victim.secure)
	f := fleet(t, proxies, sim.Config{Addrs: []string{balancer.address}})
	before := f.Stats()
	joins := func(result string) float64 { // the metric appears with the first
		if v := narrow.value(fmt.Sprintf("navarch_joins_total{result=%q}", result)); !math.IsNaN(v) {
			return v
		}
		return 0
	}
	balancer.redirect(narrow.secure)
	came, began := joins("admitted"), time.Now()
	victim.kill()
	balancer.drop()
	eventually(t, patience+proxies/rate*time.Second, func() error {
		in := joins("admitted") - came
		if most := rate*time.Since(began).Seconds() + burst + 1; in > most {
			t.Fatalf("%v were let in within %v", in, time.Since(began))
		}
		if s := f.Stats(); in < proxies || s.Joined < proxies {
			return fmt.Errorf("%v of %d let in, %d joined: %v", in, proxies, s.Joined, s.Errors)
		}
		return nil
	})
	took := time.Since(began)
	refused := joins("refused")
	t.Logf("%d proxies were back after %v; %v tries were refused", proxies, took, refused)
	if refused != 0 || took < (proxies-burst-2)/rate*time.Second {
		t.Errorf("%v tries were refused, and all were in after %v", refused, took)
	}
	if got := f.Stats().Since(before).Total(); got.Resources+got.Removed > 0 {
		t.Errorf("%d resources and %d removals were sent to proxies that have everything", got.Resources, got.Removed)
	}
	unharmed(t, f)
}

// gone returns the number of ended streams of a crowd.
func (c *crowd) gone() (times int) {
	for _, a := range c.agents {
		a.mu.Lock()
		times += len(a.ends)
		a.mu.Unlock()
	}
	return times
}

// Fault 14: a replica starts, is killed, and starts again. After its loss it gets no shards until it has stayed for a
// while: the ring is unchanged, and no proxy moves to it and back. Then it is added, and no proxy receives resources
// that it holds.
func TestFaultReplicaComesAndGoes(t *testing.T) {
	parallel(t)
	const lost = 6 * time.Second // for so long a replica that was lost once is ready before it joins
	f := startFleet(t, 2)
	args := mtls(t, "--roles=xds", f.store, "--replica-lease", "2s", "--replica-ramp", "0s")
	flapper := startProgram(t, navarchd(t), []string{"POD_NAME=flapper"}, args...)
	settled(t, append(f.replicas(), flapper)...)
	c := f.gather()
	c.grow(sized(t, 40, 400, "proxies with agents"), true, f.addresses)
	eventually(t, patience, c.home)
	received := c.sum()

	flapper.kill()
	stands := settled(t, f.replicas()...)
	eventually(t, patience, c.home)
	moves := c.gone()
	var longest time.Duration
	for range 3 {
		began := time.Now()
		flapper = flapper.again(t, navarchd(t), args...)
		eventually(t, patience, flapper.ready)
		ready := time.Now()
		eventually(t, patience, func() error { // longer than rings are apart, and than the lease
			if up := time.Since(ready); up < 2500*time.Millisecond {
				return fmt.Errorf("it is up for %v", up)
			}
			return nil
		})
		flapper.kill()
		longest = max(longest, time.Since(began))
	}
	if longest >= lost {
		t.Logf("on this machine it took %v from a start to the kill: it may have joined, and nothing is judged", longest)
	} else {
		now, err := agree(f.replicas()...)
		if err != nil || now.Ring != stands.Ring {
			t.Errorf("ring %d has become %d: %v", stands.Ring, now.Ring, err)
		}
		if again := c.gone(); again != moves {
			t.Errorf("%d streams ended while it came and went", again-moves)
		}
	}

	flapper = flapper.again(t, navarchd(t), args...)
	began := time.Now()
	settled(t, append(f.replicas(), flapper)...)
	if took := time.Since(began); took < lost {
		t.Errorf("it was taken in after %v", took)
	}
	eventually(t, patience, c.home)
	if again := c.sum(); again != received {
		t.Errorf("%d clusters were sent to proxies that hold them", again-received)
	}
}

// An uneven fleet of proxies that do not follow the ring is balanced: with a delay, a few streams per second, each
// stream once, and only while there is a leader.
func TestFleetEvensOut(t *testing.T) {
	parallel(t)
	const proxies, after = 60, 4 * time.Second
	etcd := kvtest.Start(t)
	dir, store := folder(t), "--etcd-endpoints="+etcd.Endpoint()
	lead := []string{"--roles=ingest", "--config-dir", dir, store, "--leader-lease", "2s"}
	leader := start(t, lead...)
	eventually(t, patience, leader.leading)
	var replicas []*daemon
	for range 2 {
		replicas = append(replicas, start(t, "--roles=xds", store, "--replica-lease", lease, "--replica-ramp", "0s", "--drain-after", after.String()))
	}
	full, empty := replicas[0], replicas[1]
	settled(t, replicas...)
	c := gather(t)
	began := time.Now()
	c.grow(proxies, false, func() []string { return []string{full.grpc} })
	eventually(t, patience, func() error { return c.connected("") })
	for _, a := range c.agents {
		a.mu.Lock()
		a.seeds, a.ends = func() []string { return []string{empty.grpc} }, nil
		a.mu.Unlock()
	}
	closed := func(n int) func() error {
		return func() error {
			if got := c.gone(); got < n {
				return fmt.Errorf("%d streams were closed, want %d", got, n)
			}
			return nil
		}
	}
	eventually(t, patience, closed(5))

	leader.kill()
	quiet := stayWithoutLeader(t, opened(t, etcd.Endpoint()), c, proxies)
	start(t, lead...)
	eventually(t, patience, closed(quiet+4))
	evenly(t, c, began.Add(after), proxies)
	if n := full.mustValue(t, `navarch_streams_sent_away_total{why="imbalance"}`); int(n) > c.gone() {
		t.Errorf("%v streams were sent away, %d ended", n, c.gone())
	}
	if d := empty.value(`navarch_streams_sent_away_total{why="imbalance"}`); d > 0 {
		t.Errorf("%v were sent away from where there are too few", d)
	}
	c.sum()
}

// stayWithoutLeader observes a crowd with streams still to be closed, after the leader's end: when its lease is over,
// no stream is closed. It returns the number of streams closed before that.
func stayWithoutLeader(t *testing.T, s *kv.Store, c *crowd, proxies int) (quiet int) {
	t.Helper()
	eventually(t, patience, func() error {
		candidates, err := s.Client().Get(t.Context(), s.Prefix()+"leader/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && candidates.Count > 0 {
			err = errors.New("its lease is not over")
		}
		return err
	})
	silent := time.Now()
	eventually(t, patience, func() error { // until replicas know
		if quiet = c.gone(); time.Since(silent) < 3*time.Second {
			return fmt.Errorf("there is no leader for %v", time.Since(silent))
		}
		return nil
	})
	if quiet >= proxies/2-6 {
		t.Fatalf("%d of %d streams were closed already: the test shows nothing", quiet, proxies)
	}
	eventually(t, patience, func() error {
		if now := c.gone(); now != quiet {
			t.Fatalf("%d streams were closed without a leader", now-quiet)
		}
		if time.Since(silent) < 8*time.Second {
			return fmt.Errorf("there is no leader for %v", time.Since(silent))
		}
		return nil
	})
	return quiet
}

// evenly checks the pace of closed streams: none before a time, no stream twice, and at most 2 % of the streams per
// second. Ends may be noticed late, so they are counted over some seconds, with a tolerance of one.
func evenly(t *testing.T, c *crowd, notBefore time.Time, proxies int) {
	t.Helper()
	var ends []time.Time
	for _, a := range c.agents {
		a.mu.Lock()
		if ends = append(ends, a.ends...); len(a.ends) > 1 {
			t.Errorf("one proxy was sent away %d times", len(a.ends))
		}
		a.mu.Unlock()
	}
	slices.SortFunc(ends, time.Time.Compare)
	if len(ends) == 0 || ends[0].Before(notBefore) {
		t.Errorf("the first of %d was closed %v too early", len(ends), notBefore.Sub(ends[0]))
	}
	const window = 5
	most := int(.02*float64(proxies)*window) + 1
	for i := range ends {
		n := 0
		for _, later := range ends[i:] {
			if later.Sub(ends[i]) < window*time.Second {
				n++
			}
		}
		if n > most {
			t.Errorf("%d streams were closed within %d s, at most %d may be", n, window, most)
			return
		}
	}
}
