package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
)

// The mesh of the fault tests: services [from, to), each with two endpoints and a VirtualService that carries the
// number of the edition in its routes, so that a torn configuration shows.
func town(from, to, edition int) string { return paddedTown(from, to, edition, 0) }

// paddedTown returns a town whose routes are larger by `padding` bytes for each service.
func paddedTown(from, to, edition, padding int) string {
	return townBy(from, to, padding, func(int) int { return edition })
}

// townBy returns a town whose services each have their own edition.
func townBy(from, to, padding int, edition func(service int) int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: s%03[1]d, namespace: town}
spec:
  clusterIP: 10.97.%[2]d.%[3]d
  selector: {app: s%03[1]d}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%03[1]d-1, namespace: town, labels: {kubernetes.io/service-name: s%03[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.2.%[2]d.%[3]d], conditions: {ready: true}}
- {addresses: [10.3.%[2]d.%[3]d], conditions: {ready: true}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: s%03[1]d, namespace: town}
spec:
  hosts: [s%03[1]d]
  http:
  - headers: {response: {set: {edition: "edition-%04[4]d%[5]s"}}}
    route: [{destination: {host: s%03[1]d}}]
`, i, i/200, 1+i%200, edition(i), strings.Repeat("x", padding))
	}
	return b.String()
}

// townFolder returns a new configuration folder with services [0, n) in their first edition.
func townFolder(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "town.yaml", town(0, n, 1))
	return dir
}

func edition4(edition int) string { return fmt.Sprintf("edition-%04d", edition) }

var editionMark = regexp.MustCompile(`edition-\d{4}`)

// editions counts the virtual hosts of each edition in what a replica answers.
func editions(ctx context.Context, d *daemon) (map[string]int, error) {
	got, err := everything(ctx, d.grpc, node("town", "client", "10.1.9.9"))
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, mark := range editionMark.FindAll(got[webRoute], -1) {
		count[string(mark)]++
	}
	return count, nil
}

// whole returns a check that a replica answers with n virtual hosts of one edition, and none of another.
func whole(t testing.TB, d *daemon, n, edition int) func() error {
	return func() error {
		got, err := editions(t.Context(), d)
		if err == nil && (len(got) != 1 || got[edition4(edition)] != n) {
			err = fmt.Errorf("virtual hosts by edition: %v, want %d of edition %d", got, n, edition)
		}
		return err
	}
}

// citizens returns n sidecars with equal views.
func citizens(n int) []sim.Identity {
	all := make([]sim.Identity, n)
	for i := range all {
		all[i] = sim.Identity{Namespace: "town", Name: fmt.Sprintf("client-%d", i), ServiceAccount: "client", Workload: "client",
			IP: fmt.Sprintf("10.1.%d.%d", i/200, 1+i%200), View: "client"}
	}
	return all
}

// fleet returns n simulated proxies that have joined over mTLS, distributed over the secure addresses of servers
// (xdsReplica). Their violations fail a test (unharmed).
func fleet(t testing.TB, n int, cfg sim.Config, servers ...*daemon) *sim.Fleet {
	t.Helper()
	return fleetFor(t, citizens(n), cfg, servers...)
}

// fleetFor works like fleet, for other proxies.
func fleetFor(t testing.TB, all []sim.Identity, cfg sim.Config, servers ...*daemon) *sim.Fleet {
	t.Helper()
	f := dialling(t, all, cfg, servers...)
	joined(t, f, len(all))
	return f
}

// dialling works like fleetFor, but does not wait: proxies that are refused repeatedly may never be joined all at once.
func dialling(t testing.TB, all []sim.Identity, cfg sim.Config, servers ...*daemon) *sim.Fleet {
	t.Helper()
	n := len(all)
	files := n
	if len(cfg.Addrs) > 0 {
		files *= 3 // a link has two further sockets per proxy
	}
	roomFor(t, files)
	for _, d := range servers {
		cfg.Addrs = append(cfg.Addrs, d.secure)
	}
	if cfg.TLS == nil {
		cfg.TLS = fleetCA.proxies(t)
	}
	cfg.BackOff, cfg.MaxBackOff, cfg.RevertWindow = 50*time.Millisecond, 500*time.Millisecond, 2*time.Second
	cfg.Sample = min(.1, 100/float64(n))
	cfg.WarmTimeout = patience / 2
	f, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.Add(all...)
	return f
}

// joined waits until n proxies are connected and have all requested resources.
func joined(t testing.TB, f *sim.Fleet, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := f.WaitJoined(ctx, n); err != nil {
		t.Fatal(err)
	}
}

// unharmed fails where any proxy was ever sent what no Envoy must be, or where equal proxies hold different things now.
func unharmed(t testing.TB, f *sim.Fleet) {
	t.Helper()
	f.CheckEqual()
	faultless(t, f)
}

// faultless fails where any proxy was ever sent what no Envoy must be.
func faultless(t testing.TB, f *sim.Fleet) {
	t.Helper()
	for kind, v := range f.Stats().Found {
		t.Errorf("%d times %s: %v", v.Count, kind, v.Examples)
	}
}

// undisturbed fails where a stream ended that the fleet did not end itself.
func undisturbed(t testing.TB, f *sim.Fleet) {
	t.Helper()
	if s := f.Stats(); len(s.Ended) > 0 {
		t.Errorf("streams ended: %v %v", s.Ended, s.Errors)
	}
}

// reaches makes a change that causes an edition of the routes, and waits until every proxy has acknowledged it.
func reaches(t testing.TB, f *sim.Fleet, edition int, change func()) sim.Outcome {
	t.Helper()
	p := f.Watch(sim.Change{Type: xds.Route, Name: "80", Marker: edition4(edition)})
	change()
	return acknowledged(t, p)
}

// acknowledged waits until every proxy that a probe expects has acknowledged.
func acknowledged(t testing.TB, p *sim.Probe) sim.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := p.Wait(ctx)
	if o.Acked < o.Expected || o.Expected == 0 {
		t.Fatalf("%d of %d proxies have acknowledged; missing: %v", o.Acked, o.Expected, o.Missing)
	}
	return o
}

// resumed runs what makes streams end, and waits until n streams were opened since and all of the fleet's proxies are
// joined.
func resumed(t testing.TB, f *sim.Fleet, n int, cause func()) sim.Stats {
	t.Helper()
	before := f.Stats()
	cause()
	eventually(t, patience, func() error {
		s := f.Stats()
		if s.Streams-before.Streams < uint64(n) || s.Joined < s.Proxies {
			return fmt.Errorf("of %d proxies %d are joined, %d streams since: %v", s.Proxies, s.Joined, s.Streams-before.Streams, s.Errors)
		}
		return nil
	})
	return f.Stats().Since(before)
}

// opened connects the test itself to the store that the processes use.
func opened(t testing.TB, endpoint string) *kv.Store {
	t.Helper()
	s, err := kv.Open(kv.Config{Mesh: "default", Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// following returns an error while the process leads.
func (d *daemon) following() error { return d.metric("navarch_leader 0") }
