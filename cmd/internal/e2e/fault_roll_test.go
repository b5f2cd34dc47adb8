package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// teams returns n sidecars in that many namespaces, which all see the town.
func teams(n, namespaces int) []sim.Identity {
	all := citizens(n)
	for i := range all {
		all[i].Namespace = fmt.Sprintf("team-%d", i%namespaces)
		all[i].View = all[i].Namespace
	}
	return all
}

// past records the versions of one resource that each proxy had, in their order.
type past struct {
	of sim.Ref

	mu       sync.Mutex
	versions map[string][]string
}

func pastOf(t xds.Type, name string) *past {
	return &past{of: sim.Ref{Type: t, Name: name}, versions: map[string][]string{}}
}

// note records a version; it is the function sim.Config.OnVersion.
func (h *past) note(id sim.Identity, of sim.Ref, version string) {
	if of != h.of {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[id.String()] = append(h.versions[id.String()], version)
}

// once fails the test unless each proxy had exactly two versions, the same two in the same order. It returns them.
func (h *past) once(t *testing.T, proxies int) (steps []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.versions) != proxies {
		t.Fatalf("%d proxies had %v, want %d", len(h.versions), h.of, proxies)
	}
	for _, name := range slices.Sorted(maps.Keys(h.versions)) {
		if steps == nil {
			steps = h.versions[name]
		}
		if had := h.versions[name]; len(had) != 2 || !slices.Equal(had, steps) {
			t.Errorf("%s had %v, another %v", name, had, steps)
		}
	}
	return steps
}

// editing changes a town repeatedly: each edition follows once the fleets have received the one before. stop makes a
// last edition, and returns the number of editions.
func editing(t *testing.T, dir string, services int, fleets ...*sim.Fleet) (stop func() (editions int)) {
	over, done, edition := make(chan struct{}), make(chan struct{}), 1
	edit := func() bool {
		edition++
		var probes []*sim.Probe
		for _, f := range fleets {
			probes = append(probes, f.Watch(sim.Change{Type: xds.Route, Name: "80", Marker: edition4(edition)}))
		}
		write(t, dir, "town.yaml", town(0, services, edition))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, p := range probes {
			if o := p.Wait(ctx); o.Acked < o.Expected || o.Expected == 0 {
				t.Errorf("edition %d: %d of %d proxies have acknowledged; missing: %v", edition, o.Acked, o.Expected, o.Missing)
				return false
			}
		}
		return true
	}
	go func() {
		defer close(done)
		pace := time.NewTicker(250 * time.Millisecond)
		defer pace.Stop()
		for last := false; edit() && !last; {
			select {
			case <-over:
				last = true
			case <-pace.C:
			}
		}
	}()
	halt := sync.OnceFunc(func() { close(over); <-done })
	t.Cleanup(halt)
	return func() int { halt(); return edition }
}

// Fault 25, in good order: three replicas stop one after the other, and each starts again as a build that encodes every
// cluster differently, during continuous edits. Proxies with agents follow the ring, make before break; stock proxies
// keep their replica. Each proxy changes once from the old clusters to the new ones, and receives no wrong resource.
func TestFaultRollingUpgradeInGoodOrder(t *testing.T) {
	parallel(t)
	const n, namespaces = 20, 16
	following, stock := sized(t, 24, 1200, "proxies with agents"), sized(t, 12, 600, "stock proxies")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, n)
	// No process is killed: a lease that ends on a busy machine would not be good order.
	args := mtls(t, "--roles=ingest,xds", "--config-dir", dir, store, "--leader-lease", "30s", "--replica-lease", "30s",
		"--replica-ramp", "0s", "--shutdown-duration", "8s") // proxies leave during most of it; the rest is a reserve for a busy machine
	newer, older := nextBinary(t), binary(t, "navarchd")
	var replicas []*daemon
	for range 3 {
		replicas = append(replicas, startProgram(t, older, nil, args...))
	}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
	}
	settled(t, replicas...)
	versions := pastOf(xds.Cluster, "outbound|80||s000.town.svc.cluster.local")
	agents := fleetFor(t, teams(following, namespaces), sim.Config{Follow: true, MoveWithin: 500 * time.Millisecond, OnVersion: versions.note}, replicas...)
	stockFleet := fleetFor(t, citizens(stock), sim.Config{OnVersion: versions.note}, replicas...)
	moves := agents.Stats().Moves
	stop := editing(t, dir, n, agents, stockFleet)
	for i, d := range replicas {
		d.stop(t)
		replicas[i] = d.again(t, newer, args...)
		eventually(t, patience, replicas[i].ready)
		if i < len(replicas)-1 {
			settled(t, replicas...)
		}
	}
	editions := stop()
	for _, f := range []*sim.Fleet{agents, stockFleet} {
		unharmed(t, f)
	}
	moves = agents.Stats().Moves - moves
	t.Logf("%d editions, %d moves, clusters %v", editions, moves, versions.once(t, following+stock))
	if editions < 4 || moves < uint64(following)/3 {
		t.Errorf("%d editions, %d moves of %d agents: the test shows nothing", editions, moves, following)
	}
}
