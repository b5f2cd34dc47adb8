//go:build upgrade

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/programs"
)

// calls is requests through a proxy without a pause, one after the other.
type calls struct {
	stop  func()
	count int
	fault error // the first
}

// calling starts calls and returns after the first answer. An Envoy without an agent gets it as soon as the routes of
// its namespace permit.
func calling(t *testing.T, front string) *calls {
	t.Helper()
	eventually(t, patience, func() error { _, err := callBack(t.Context(), front); return err })
	c, over, done := &calls{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-over:
				return
			case <-pace.C:
			}
			if _, err := callBack(t.Context(), front); err != nil && c.fault == nil {
				c.fault = fmt.Errorf("request %d: %w", c.count, err)
			}
			c.count++
		}
	}()
	c.stop = sync.OnceFunc(func() { close(over); <-done })
	t.Cleanup(c.stop)
	return c
}

// upgrade is a control plane of two processes whose build is replaced, and its proxies.
type upgrade struct {
	t        *testing.T
	dir      string
	services int
	args     []string
	replicas []*daemon
	fleets   []*sim.Fleet
	first    map[string]uint64 // resources that the fleets were sent as they joined, by type
	edition  int               // of the routes of the traffic
}

// roll replaces all processes by another build, one after the other, during edits. Resources that both builds encode
// alike are not sent again, and those that they encode differently are sent once. Of each type except routes, which are
// edited, no more is sent than at the first join.
func (u *upgrade) roll(name, program string, under *traffic) {
	t := u.t
	t.Helper()
	before := u.stats()
	stop := editing(t, u.dir, u.services, u.fleets...)
	for i, d := range u.replicas {
		d.stop(t)
		u.replicas[i] = d.again(t, program, u.args...)
		eventually(t, patience, u.replicas[i].ready)
		settled(t, u.replicas...)
		u.edition++
		write(t, u.dir, "marked.yaml", marked(u.edition))
		eventually(t, patience, under.at(t, u.edition))
	}
	editions := stop()
	if editions < 3 {
		t.Errorf("%s: %d editions: the test shows less than it should", name, editions)
	}
	for kind, sent := range u.stats() {
		sent.Resources -= before[kind].Resources
		sent.Removed -= before[kind].Removed
		t.Logf("%s: %s: %d resources were sent, %d removed; %d at the first join; %d editions", name, kind, sent.Resources, sent.Removed, u.first[kind], editions)
		if sent.Removed > 0 || kind != "RDS" && sent.Resources > u.first[kind] {
			t.Errorf("%s: %s: %d resources were sent and %d removed, of %d", name, kind, sent.Resources, sent.Removed, u.first[kind])
		}
	}
	for _, f := range u.fleets {
		n := int(f.Stats().Joined)
		again := resumed(t, f, n, func() { f.Reconnect(sim.All, sim.Reconnect{Now: true}) })
		for kind, got := range again.Types {
			if kind != ofAgents && got.Resources+got.Removed > 0 {
				t.Errorf("%s: %s: %d resources were sent and %d removed where proxies came back and nothing had changed", name, kind, got.Resources, got.Removed)
			}
		}
	}
}

// ofAgents is the type that only agents receive: their owner, which changes whenever a replica comes or goes.
const ofAgents = "agent"

// sums counts the resources of one type that fleets received.
type sums struct{ Resources, Removed uint64 }

func (u *upgrade) stats() map[string]sums {
	all := map[string]sums{}
	for _, f := range u.fleets {
		for kind, sent := range f.Stats().Types {
			if kind == ofAgents {
				continue
			}
			s := all[kind]
			all[kind] = sums{s.Resources + sent.Resources, s.Removed + sent.Removed}
		}
	}
	return all
}

// Processes are upgraded from version N-1 to N and rolled back, one by one, during edits. No request fails, neither
// through an Envoy with N-1's agent nor through one without agent. Simulated proxies, with and without agents that
// follow the ring, change once from the resources of one build to those of the other, and receive nothing else. The CA
// keeps working. An agent of N that joined in between stays connected during the rollback.
func TestUpgradeAndRollback(t *testing.T) {
	before, err := programs.Before()
	if errors.Is(err, programs.ErrNoHistory) {
		t.Skipf("the version in deploy/upgrade-from cannot be built: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	etcd := kvtest.Start(t)
	u := &upgrade{t: t, services: 20, edition: 1}
	var at string
	u.dir, at = shopFolder(t)
	finish := backEnd(t, at)
	write(t, u.dir, "town.yaml", town(0, u.services, 1))
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "back") }))
	t.Cleanup(answers.Close)
	_, port, _ := net.SplitHostPort(answers.Listener.Addr().String())
	write(t, u.dir, "back.yaml", fmt.Sprintf(oneBackend, port))

	e := newEnrolment(t, "--etcd-endpoints="+etcd.Endpoint())
	u.args = append([]string{"--roles=ingest,xds,ca", "--config-dir", u.dir, e.store, "--leader-lease", "10s", "--replica-lease", "10s", "--replica-ramp", "0s",
		"--shutdown-duration", "8s"}, e.more...)
	for i := range 2 {
		u.replicas = append(u.replicas, startProgram(t, filepath.Join(before, "navarchd"), []string{fmt.Sprint("POD_NAME=replica-", i)}, u.args...))
	}
	settled(t, u.replicas...)
	e.by(u.replicas[0])
	roots := filepath.Join(t.TempDir(), "roots.pem")
	text, err := exec.Command(binary(t, "navarchctl"), "ca", "roots", e.store, e.kek).Output()
	if err = errors.Join(err, os.WriteFile(roots, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	agent := func(program, workload, ip string) proxy {
		proof, _, err := e.issuer.Mint("shop", workload, "istio-ca", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return runAgentProgram(t, u.replicas[0], program, proof, roots, workload, ip, nil)
	}
	agent(filepath.Join(before, "navarch-agent"), "web", at+".1")
	under := flow(t, at)
	front := loopback.For(t)
	_, frontPort, _ := net.SplitHostPort(front)
	envoytest.Start(t, frontEnvoy(t, u.replicas[0].grpc, frontPort))
	plain := calling(t, front)
	drawn := pastOf(xds.Cluster, "outbound|80||s000.town.svc.cluster.local")
	everybody := citizens(20)
	for i, all := range [][]sim.Identity{everybody[:12], everybody[12:]} { // with agents that follow the ring, and stock ones
		u.fleets = append(u.fleets, fleetFor(t, all, e.overTLS(sim.Config{Follow: i == 0, MoveWithin: 500 * time.Millisecond, OnVersion: drawn.note}, u.replicas...)))
	}
	u.first = map[string]uint64{}
	for kind, sent := range u.stats() {
		u.first[kind] = sent.Resources
	}

	u.roll("upgrade", binary(t, "navarchd"), under)
	later := agent(binary(t, "navarch-agent"), "db", "127.0.0.1")
	connected := func() error {
		page, err := later.page()
		if err == nil && (!page.Ready || !page.XDS.Connected || page.Certificate.LastFailure != "") {
			err = fmt.Errorf("%+v", page)
		}
		return err
	}
	eventually(t, patience, connected)
	u.roll("rollback", filepath.Join(before, "navarchd"), under)
	eventually(t, patience, connected)

	finish()
	under.halt()
	plain.stop()
	if n := under.fine(t); plain.fault != nil || n < 500 || plain.count < 500 {
		t.Errorf("%d requests through the Envoy with an agent, %d through the one without: %v", n, plain.count, plain.fault)
	}
	drawn.mu.Lock()
	defer drawn.mu.Unlock()
	for name, had := range drawn.versions {
		if len(had) != 1 && (len(had) != 3 || had[0] != had[2]) {
			t.Errorf("%s had %v of one cluster: want one, or the one, the other and the first again", name, had)
		}
	}
	for _, f := range u.fleets {
		unharmed(t, f)
	}
}
