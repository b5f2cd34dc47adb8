package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// slices24 returns the EndpointSlices of services [0, n) of a town, with names that end with `ending`. Each has one
// endpoint in a /24 network.
func slices24(n int, ending, network string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%03[1]d-%[2]s, namespace: town, labels: {kubernetes.io/service-name: s%03[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [%[3]s.%[4]d], conditions: {ready: true}}]
`, i, ending, network, 1+i%200)
	}
	return b.String()
}

func assignment(service int) string {
	return fmt.Sprintf("outbound|80||s%03d.town.svc.cluster.local", service)
}

// endpointEdit changes one endpoint, and returns the traffic until every proxy has acknowledged the change.
func endpointEdit(t *testing.T, f *sim.Fleet, dir string, network string) sim.Stats {
	t.Helper()
	before := f.Stats()
	p := f.Watch(sim.Change{Type: xds.Endpoint, Name: assignment(0), Marker: network + "."})
	write(t, dir, "edit.yaml", slices24(1, "edit", network))
	acknowledged(t, p)
	return f.Stats().Since(before)
}

// rest returns the processor time that processes use in the next five seconds.
func rest(t *testing.T, processes ...*daemon) (spent time.Duration) {
	t.Helper()
	sum := func() (all time.Duration) {
		for _, d := range processes {
			p, err := gauge.Glance(d.cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			all += p.CPU()
		}
		return all
	}
	before, over := sum(), time.After(5*time.Second)
	<-over
	return sum() - before
}

// Fault 20: the endpoints of all services change repeatedly, 5,000 changes per second for a minute at full size, which
// exceeds the capacity of a machine. Outdated states are not sent. After the end all proxies soon have the last state,
// and the mesh works as before without a restart: one change has its former cost, and nothing continues by itself.
func TestFaultEventStorm(t *testing.T) {
	parallel(t)
	n, proxies, rounds := sized(t, 100, 500, "services"), sized(t, 20, 2000, "proxies"), sized(t, 20, 600, "times all endpoints change")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, n)
	write(t, dir, "storm.yaml", slices24(n, "storm", "10.100.0"))
	leader := start(t, "--roles=ingest", "--config-dir", dir, store)
	replica := xdsReplica(t, store)
	eventually(t, patience, whole(t, replica, n, 1))
	f := fleet(t, proxies, sim.Config{}, replica)
	quiet(t, f)
	atRest := time.Duration(0)
	if faultScale >= fullScale {
		atRest = rest(t, leader, replica)
	}
	endpointEdit(t, f, dir, "172.17.1") // the first brings a slice, which the next ones change
	calm := endpointEdit(t, f, dir, "172.17.2").Total()
	live := 0
	if faultScale > 1 { // memory is measured at full size, on a machine that does nothing else
		live = replica.live(t)
	}
	storm(t, f, leader, dir, n, rounds)
	quiet(t, f)
	recovered(t, f, dir, calm)
	for _, d := range []*daemon{leader, replica} {
		eventually(t, patience, func() error { return d.metric("navarch_ingest_waiting 0") })
	}
	if faultScale >= fullScale {
		if now := rest(t, leader, replica); now > atRest+time.Second/2 {
			t.Errorf("at rest the processes took %v of processor time in 5 s before, and take %v now", atRest, now)
		}
	}
	if faultScale > 1 {
		now := replica.live(t)
		t.Logf("live heap: %d bytes before, %d after", live, now)
		if now > live+16<<20+proxies<<13 { // 8 KB for each: buffers that were used
			t.Errorf("the live heap grew from %d to %d bytes", live, now)
		}
	}
	lastEndpoints(t, replica, n)
	// A new proxy has the current state: all others hold the same.
	f.Add(citizens(proxies + 1)[proxies])
	joined(t, f, proxies+1)
	unharmed(t, f)
	undisturbed(t, f)
}

// storm changes the endpoints of n services a number of times, ten times a second, and waits until all proxies have the
// last ones.
func storm(t *testing.T, f *sim.Fleet, leader *daemon, dir string, n, rounds int) {
	t.Helper()
	before, wrote := f.Stats(), leader.mustValue(t, `navarch_store_writes_total{op="put"}`)
	first := f.Watch(sim.Change{Type: xds.Endpoint, Name: assignment(0), Marker: "172.16.9."})
	last := f.Watch(sim.Change{Type: xds.Endpoint, Name: assignment(n - 1), Marker: "172.16.9."})
	began, tick := time.Now(), time.NewTicker(100*time.Millisecond)
	for r := 1; r < rounds; r++ {
		write(t, dir, "storm.yaml", slices24(n, "storm", fmt.Sprintf("10.%d.%d", 100+r/250, r%250)))
		<-tick.C
	}
	tick.Stop()
	write(t, dir, "storm.yaml", slices24(n, "storm", "172.16.9"))
	over := time.Now()
	acknowledged(t, first)
	acknowledged(t, last)
	within(t, 10*time.Second, time.Since(over), "drained")
	changes, proxies := rounds*n, f.Stats().Proxies
	sent := f.Stats().Since(before).Types["EDS"]
	t.Logf("size: %.0f changes a second", float64(changes)/over.Sub(began).Seconds())
	t.Logf("of %d changes %v were written, %d sent to each proxy, in %d responses", changes, leader.mustValue(t, `navarch_store_writes_total{op="put"}`)-wrote,
		sent.Resources/uint64(proxies), sent.Responses/uint64(proxies))
	if most := uint64(proxies * (2*rounds + 10)); sent.Responses > most || sent.Resources > uint64(changes*proxies) {
		t.Errorf("%d changes to %d proxies were sent as %d resources in %d responses, at most %d are needed", changes, proxies, sent.Resources, sent.Responses, most)
	}
}

// lastEndpoints checks that a replica answers with the endpoints of n services that a storm left.
func lastEndpoints(t *testing.T, replica *daemon, n int) {
	t.Helper()
	got, err := everything(t.Context(), replica.grpc, node("town", "client", "10.1.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if body := string(got[xds.Endpoint.URL()+" "+assignment(i)]); !strings.Contains(body, "172.16.9.") || strings.Contains(body, "10.10") {
			t.Errorf("%s has not its last endpoints: %q", assignment(i), body)
		}
	}
}

// recovered compares the cost of one change with that before a storm.
func recovered(t *testing.T, f *sim.Fleet, dir string, calm sim.TypeStats) {
	t.Helper()
	got := endpointEdit(t, f, dir, "172.17.3").Total()
	if got.Responses != calm.Responses || got.Resources != calm.Resources || got.Removed != calm.Removed {
		t.Errorf("one change was %d resources in %d responses before the storm, and is %d in %d after it", calm.Resources, calm.Responses, got.Resources, got.Responses)
	}
}

// quiet waits until nothing more is sent to a fleet, for a second.
func quiet(t *testing.T, f *sim.Fleet) {
	t.Helper()
	last, since := f.Stats().Total().Responses, time.Now()
	eventually(t, patience, func() error {
		s := f.Stats()
		if now := s.Total().Responses; now != last || s.Unacked > 0 {
			last, since = now, time.Now()
		}
		if calm := time.Since(since); calm < time.Second {
			return fmt.Errorf("nothing was sent for %v, %d are not acknowledged", calm, s.Unacked)
		}
		return nil
	})
}
