package e2e

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// lease is the lease of replicas and leaders in a test that needs them to stay: shorter than the default, so that
// killed processes are soon replaced, and longer than the delays of a busy machine or of etcd's disk.
const lease = "6s"

// fleetOf are xDS replicas of a fleet, to which agents come over mTLS.
type fleetOf struct {
	t     *testing.T
	store string
	dir   string   // of the configuration
	env   []string // additions to the environment of replicas that come ...
	flags []string // ... and to their flags
	mu    sync.Mutex
	live  []*daemon
}

func startFleet(t *testing.T, n int) *fleetOf {
	t.Helper()
	f := &fleetOf{t: t, store: "--etcd-endpoints=" + kvtest.Start(t).Endpoint(), dir: folder(t)}
	ingest := start(t, "--roles=ingest", "--config-dir", f.dir, f.store, "--leader-lease", lease)
	eventually(t, patience, ingest.leading)
	for range n {
		f.add()
	}
	for _, d := range f.replicas() {
		eventually(t, patience, d.ready)
	}
	return f
}

func (f *fleetOf) add() *daemon {
	args := mtls(f.t, "--roles=xds", f.store, "--replica-lease", lease, "--replica-ramp", "0s", "--shutdown-duration", "10s")
	d := startProgram(f.t, navarchd(f.t), f.env, append(args, f.flags...)...)
	f.mu.Lock()
	f.live = append(f.live, d)
	f.mu.Unlock()
	return d
}

// drop removes a replica from the list that clients use, as a load balancer would.
func (f *fleetOf) drop(i int) *daemon {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.live[i]
	f.live = append(append([]*daemon(nil), f.live[:i]...), f.live[i+1:]...)
	return d
}

func (f *fleetOf) replicas() []*daemon {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*daemon(nil), f.live...)
}

// gather returns a crowd whose agents have certificates.
func (f *fleetOf) gather() *crowd {
	c := gather(f.t)
	c.secure = true
	return c
}

func (f *fleetOf) addresses() (all []string) {
	for _, d := range f.replicas() {
		all = append(all, d.secure)
	}
	return all
}

// moved counts the shards with a new owner, except those of one former owner.
func moved(before, after []string, but string) (n int) {
	for s := range before {
		if before[s] != but && before[s] != after[s] {
			n++
		}
	}
	return n
}

// Three replicas share the proxies. One is killed: when its lease has ended, the others own its shards, and its proxies
// connect to them without receiving resources. Another joins and gets its share, and no other shard moves.
func TestFleetShares(t *testing.T) {
	parallel(t)
	f := startFleet(t, 3)
	settled(t, f.replicas()...)
	c := f.gather()
	c.grow(60, true, f.addresses)
	eventually(t, patience, c.home)
	if where := c.at(); len(where) != 3 {
		t.Errorf("proxies are at %v", where)
	}
	received := c.sum()
	// The shards that a replica takes over depend on the replicas' reported loads, which are written every 10 s.
	eventually(t, patience, func() error { return f.replicas()[0].metric("navarch_fleet_proxies_per_replica 20") })
	before := settled(t, f.replicas()...)

	dead := f.drop(0)
	dead.kill()
	after := settled(t, f.replicas()...)
	// More than the dead one's shards may move: the ring balances the streams that replicas last reported, and these may
	// already include agents that came from the dead one. How few move while reports stay the same is tested in shard/ring
	// (TestMovesOfOneReplica, TestLeastMovement). A ring that was made without the one before would move some 85 of
	// theirs.
	if n := moved(before.owners(), after.owners(), dead.secure); n > 80 {
		t.Errorf("%d shards moved between those that are left", n)
	}
	eventually(t, patience, c.home)
	if again := c.sum(); again != received {
		t.Errorf("%d clusters were sent to proxies that hold them", again-received)
	}

	eventually(t, patience, func() error { return f.replicas()[0].metric("navarch_fleet_proxies_per_replica 30") })
	fresh := f.add()
	eventually(t, patience, fresh.ready)
	eventually(t, patience, func() error { // logged before the replica is ready; the test may read it later
		if !strings.Contains(fresh.log.String(), `msg="the namespaces that this replica will own are planned" scopes=`) {
			return errors.New("it planned nothing before it was ready")
		}
		return nil
	})
	third := settled(t, f.replicas()...)
	for s, owner := range third.owners() {
		if owner != fresh.secure && owner != after.owners()[s] {
			t.Errorf("shard %d moved between replicas that were there", s)
		}
	}
	// A third of 60, within 3 sigma; agents are notified in turn.
	eventually(t, patience, func() error {
		if n := c.at()[fresh.secure]; n < 9 {
			return fmt.Errorf("the new one has %d of 60 proxies, all: %v", n, c.at())
		}
		return nil
	})
	for _, d := range f.replicas() {
		eventually(t, patience, func() error { return d.metric("navarch_misplaced_proxies 0") })
	}
	eventually(t, patience, c.home)
	if n := c.at()[fresh.secure]; n > 31 {
		t.Errorf("the new one has %d of 60 proxies, all: %v", n, c.at())
	}
	if again := c.sum(); again != received {
		t.Errorf("%d clusters were sent to proxies that hold them", again-received)
	}
	for _, d := range f.replicas() {
		eventually(t, patience, func() error {
			return d.haveSamples("navarch_fleet_replicas", "navarch_fleet_proxies_per_replica", "navarch_imbalance", "navarch_join_rate", `navarch_joins_total{result="admitted"}`)()
		})
		eventually(t, patience, func() error { return d.metric("navarch_misplaced_proxies 0") })
	}
}

// A replica that stops first leaves the ring. It moves its streams away over the grace period, those of stock agents
// one after the other, admits no new ones meanwhile, and ends in time.
func TestFleetDrains(t *testing.T) {
	parallel(t)
	f := startFleet(t, 2)
	settled(t, f.replicas()...)
	agents, stock := f.gather(), f.gather()
	agents.grow(20, true, f.addresses)
	going := f.drop(0)
	stays := f.replicas()[0]
	stock.grow(30, false, func() []string { return []string{going.secure} })
	eventually(t, patience, agents.home)
	eventually(t, patience, func() error { return stock.connected("") })
	for _, a := range stock.agents {
		a.mu.Lock()
		a.seeds = func() []string { return []string{stays.secure} }
		a.ends = nil
		a.mu.Unlock()
	}
	began := time.Now()
	if err := going.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { return stock.connected(going.secure) })
	eventually(t, patience, agents.home)
	eventually(t, patience, func() error {
		select {
		case <-going.exited:
			return nil
		default:
			return errStillThere
		}
	})
	within(t, 12*time.Second, time.Since(began), "gone in its grace period of 10 s")
	if !going.cmd.ProcessState.Success() {
		t.Errorf("it ended with %v", going.cmd.ProcessState)
	}
	var first, last time.Time
	for _, a := range stock.agents {
		a.mu.Lock()
		if len(a.ends) != 1 {
			t.Errorf("a stock agent's streams ended %d times", len(a.ends))
		}
		for _, end := range a.ends {
			if first.IsZero() || end.Before(first) {
				first = end
			}
			if end.After(last) {
				last = end
			}
		}
		a.mu.Unlock()
	}
	t.Logf("streams ended from %v to %v after SIGTERM", first.Sub(began), last.Sub(began))
	if last.Sub(first) < 2*time.Second {
		t.Errorf("all streams ended within %v", last.Sub(first))
	}
	agents.sum()
	stock.sum()
	settled(t, stays)
}

// A replica that is paused for longer than its lease loses its shards. When it continues, it serves no proxy from its
// old state before it has verified that it is not behind.
func TestFleetPaused(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, store := folder(t), "--etcd-endpoints="+etcd.Endpoint()
	ingest := start(t, "--roles=ingest", "--config-dir", dir, store)
	eventually(t, patience, ingest.leading)
	one := start(t, "--roles=xds", store, "--replica-lease", "30s", "--replica-ramp", "0s")
	two := start(t, "--roles=xds", store, "--replica-lease", "30s", "--replica-ramp", "0s")
	eventually(t, patience, serves(t, one, 1))
	eventually(t, patience, serves(t, two, 1))
	settled(t, one, two)
	// Streams that will send requests during the pause.
	early := make([]discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, 10)
	for i := range early {
		var err error
		if early[i], err = service(t, one).DeltaAggregatedResources(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	settled(t, two)
	write(t, dir, "routes.yaml", routes(2))
	eventually(t, patience, serves(t, two, 2))
	seen, _, err := edition(t.Context(), two, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range early {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", "client", "10.1.9.9"), TypeUrl: xds.Cluster.URL()}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if err := one.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, stream := range early {
		res, err := stream.Recv()
		if err != nil {
			continue // a refusal is permitted
		}
		if got, err := strconv.ParseInt(res.SystemVersionInfo, 10, 64); err != nil || got < seen {
			t.Errorf("it answered with revision %s, the newest was %d", res.SystemVersionInfo, seen)
		}
	}
	eventually(t, patience, func() error { // a refusal is permitted, an answer from old state is not
		got, _, err := edition(t.Context(), one, 0, "")
		if err == nil && got < seen {
			t.Fatalf("it answered with revision %d, the newest was %d", got, seen)
		}
		return err
	})
	eventually(t, patience, serves(t, one, 2))
	settled(t, one, two)
}
