package e2e

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/programs"
)

// Fault 12: one of three replicas, the leader, is killed. Its proxies connect to the others and receive no resource
// that they already hold. The proxies of the others are not disturbed, and changes continue to arrive.
func TestFaultReplicaKilled(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 50, 300, "services"), sized(t, 60, 9999, "proxies")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, n)
	args := mtls(t, "--roles=ingest,xds", "--config-dir", dir, store, "--leader-lease", lease)
	leader := start(t, args...)
	eventually(t, patience, leader.leading)
	replicas := []*daemon{leader, start(t, args...), start(t, args...)}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
	}
	f := fleet(t, proxies, sim.Config{}, replicas...)
	full := f.Stats().Total().BytesIn / uint64(proxies)

	began := time.Now()
	got := resumed(t, f, proxies/3, leader.kill)
	eventually(t, patience, letIn(proxies, replicas[1:]...))
	within(t, 30*time.Second, time.Since(began), "all are served elsewhere")
	if total := got.Total(); total.Resources > 0 || total.BytesIn > full*uint64(proxies)/3*2/100 {
		t.Errorf("%d proxies moved and were sent %d resources, %d bytes; a full state is %d bytes each", proxies/3, total.Resources, total.BytesIn, full)
	}
	if got.Streams != uint64(proxies/3) {
		t.Errorf("%d streams were opened, want %d: others were disturbed", got.Streams, proxies/3)
	}
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, n, 2)) })
	unharmed(t, f)
}

// Fault 13: all replicas are killed and start again together, at their addresses. All proxies are served again without
// receiving resources that they hold. From the first listening replica until all proxies are admitted, a client gets
// certificates, one after the other.
func TestFaultAllReplicasKilled(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 50, 300, "services"), sized(t, 80, 9999, "proxies")
	s := newSealable(t)
	s.flags = append(s.flags, "--shared-sources", "127.0.0.1/32")
	if faultScale < fullScale { // few proxies reconnect in an instant: delay the last ones, so that certificates are requested meanwhile
		s.env = []string{fmt.Sprintf("PILOT_MAX_REQUESTS_PER_SECOND=%d", max(proxies/15, 1))}
	}
	write(t, s.dir, "town.yaml", town(0, n, 1))
	replicas := []*daemon{s.start(), s.start(), s.start()}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
	}
	s.trust()
	mine := token(t, s.data, "town", "client")
	f := s.enrolment(replicas[0]).fleet(proxies, sim.Config{}, replicas...)
	allIn, done := make(chan struct{}), make(chan issued, 1)
	began := time.Now()
	got := resumed(t, f, proxies, func() {
		for _, d := range replicas {
			d.kill()
		}
		for i, d := range replicas {
			replicas[i] = d.again(t, navarchd(t), s.flags...)
		}
		eventually(t, patience, func() error { return listens(replicas...) })
		go func() { done <- s.certificates(mine, replicas, allIn) }()
	})
	eventually(t, patience, letIn(proxies, replicas...))
	within(t, time.Minute, time.Since(began), "full service again")
	close(allIn)
	certificates := <-done
	if certificates.err != nil {
		t.Errorf("%d certificates, and then: %v", certificates.n, certificates.err)
	}
	slowestWithin(t, 10*time.Second, certificates.longest, began, fmt.Sprintf("%d certificates meanwhile, the slowest", certificates.meanwhile))
	if total := got.Total(); total.Resources+total.Removed > 0 {
		t.Errorf("%d resources and %d removals were sent to proxies that have everything", total.Resources, total.Removed)
	}
	reaches(t, f, 2, func() { write(t, s.dir, "town.yaml", town(0, n, 2)) })
	unharmed(t, f)
	for _, d := range replicas {
		if err := d.ready(); err != nil {
			t.Error(err)
		}
	}
}

// letIn returns a check that replicas together serve `proxies` streams. Proxies cannot report this themselves: one that
// holds everything gets no response, and does not notice that it waits for admission.
func letIn(proxies int, replicas ...*daemon) func() error {
	return func() error {
		in := 0.
		for _, d := range replicas {
			in += d.value("navarch_proxies")
		}
		if !(in >= float64(proxies)) {
			return fmt.Errorf("%v of %d proxies were let in", in, proxies)
		}
		return nil
	}
}

// listens returns an error while no replica accepts connections on its secure address.
func listens(replicas ...*daemon) (err error) {
	for _, d := range replicas {
		var conn net.Conn
		if conn, err = net.Dial("tcp", d.secure); err == nil {
			return conn.Close()
		}
	}
	return err
}

// issued contains a client's measurements of the CA.
type issued struct {
	n, meanwhile int           // numbers of certificates: all, and those before all proxies were admitted
	longest      time.Duration // from the first request for a certificate to its answer
	err          error
}

// certificates requests certificates with a token from the replicas in turn, until all proxies are admitted and every
// replica has signed five. A replica that does not sign yet is skipped; once it has signed it must always answer.
func (s *sealable) certificates(token string, replicas []*daemon, allIn <-chan struct{}) (got issued) {
	signs, conf := map[*daemon]int{}, s.tls()
	enough := func() bool {
		return !slices.ContainsFunc(replicas, func(d *daemon) bool { return signs[d] < 5 })
	}
	tick := time.NewTicker(10 * time.Millisecond) // not a storm of requests
	defer tick.Stop()
	asked := time.Now()
	for i := 0; ; i++ {
		d := replicas[i%len(replicas)]
		_, _, err := signed(bearer(s.t.Context(), token), s.t, d.secure, conf)
		if err != nil && (signs[d] > 0 || time.Since(asked) > patience || s.t.Context().Err() != nil) {
			got.err = fmt.Errorf("%s: %w", d.secure, err)
			return got
		}
		if err == nil {
			signs[d]++
			got.n++
			got.longest = max(got.longest, time.Since(asked))
		}
		select {
		case <-allIn:
			if enough() {
				return got
			}
		default:
			got.meanwhile = got.n
		}
		<-tick.C
		if err == nil {
			asked = time.Now()
		}
	}
}

// Fault 13, with one process that has all roles and its own etcd: it is killed, and starts again. While its proxies
// reconnect, a workload gets its first certificate.
func TestFaultEverythingKilled(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 50, 300, "services"), sized(t, 80, 2000, "proxies")
	dir, data := townFolder(t, n), t.TempDir()
	args := []string{"--config-dir", dir, "--data-dir", data, "--shared-sources", "127.0.0.1/32"}
	d := start(t, args...)
	eventually(t, patience, whole(t, d, n, 1))
	mesh := builtIn(t, d, data)
	f := mesh.fleet(proxies, sim.Config{}, d)
	began := time.Now()
	got := resumed(t, f, proxies, func() {
		d.kill()
		d = d.again(t, navarchd(t), args...)
		eventually(t, patience, func() error {
			_, _, err := mesh.first(t.Context(), d.secure, "town", "client")
			return err
		})
	})
	eventually(t, patience, letIn(proxies, d))
	within(t, time.Minute, time.Since(began), "full service again")
	if total := got.Total(); total.Resources+total.Removed > 0 {
		t.Errorf("%d resources and %d removals were sent to proxies that have everything", total.Resources, total.Removed)
	}
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, n, 2)) })
	unharmed(t, f)
}

// nextBinary builds navarchd with clusters that differ in one detail, as after an upgrade.
func nextBinary(t testing.TB) string {
	t.Helper()
	return programs.Changed(t, "next",
		programs.Edit{File: "push/build/cluster/outbound.go", Text: "HealthyPanicThreshold: percent(0)", By: "HealthyPanicThreshold: percent(1)"})
}

// Fault 25: three replicas are replaced one after the other by a build that encodes every cluster differently, while
// the configuration changes and memory use is above the replicas' limit. Every proxy changes from the old clusters to
// the new ones once, and never back.
func TestFaultRollingUpgrade(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 30, 300, "services"), sized(t, 45, 2001, "proxies")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, n)
	args := mtls(t, "--roles=ingest,xds", "--config-dir", dir, store, "--leader-lease", lease)
	limit := 16<<20 + proxies/3<<17 // bytes; less than the proxies need over mTLS
	tight := []string{fmt.Sprintf("GOMEMLIMIT=%d", limit)}
	newer, older := nextBinary(t), binary(t, "navarchd")
	var replicas []*daemon
	for range 3 {
		replicas = append(replicas, startProgram(t, older, tight, args...))
	}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
	}
	f := fleet(t, proxies, sim.Config{}, replicas...)
	before := f.Stats()
	const marker = "outbound|80||s000.town.svc.cluster.local"
	moved := f.Watch(sim.Change{Type: xds.Cluster, Name: marker})
	edition := 1
	edit := func() {
		edition++
		reaches(t, f, edition, func() { write(t, dir, "town.yaml", town(0, n, edition)) })
	}
	for i, d := range replicas {
		resumed(t, f, proxies/3, d.kill)
		edit()
		replicas[i] = d.again(t, newer, args...)
		eventually(t, patience, replicas[i].ready)
		edit()
	}
	eventually(t, patience, func() error { // polled, because memory use rises until a collection and falls after it
		used := replicas[0].mustValue(t, "go_memstats_sys_bytes") - replicas[0].mustValue(t, "go_memstats_heap_released_bytes")
		if used < float64(limit) {
			return fmt.Errorf("%v bytes are in use: the limit does not bind", used)
		}
		return nil
	})
	acknowledged(t, moved)
	// Clusters were sent as for one upgrade. A proxy that moved back and forth would have received them two times more.
	eventually(t, patience, func() error {
		if differ := f.CheckEqual(); differ > 0 {
			return fmt.Errorf("%d proxies differ", differ)
		}
		return nil
	})
	sent := f.Stats().Since(before).Types["CDS"].Resources
	each := before.Types["CDS"].Resources / uint64(proxies)
	t.Logf("%d clusters each; %d sent in the upgrade of %d proxies", each, sent, proxies)
	if sent > each*uint64(proxies) {
		t.Errorf("%d clusters were sent, at most %d are new", sent, each*uint64(proxies))
	}
	for kind, v := range f.Stats().Found {
		if kind != sim.Unequal { // proxies of the two builds differ meanwhile
			t.Errorf("%d times %s: %v", v.Count, kind, v.Examples)
		}
	}
}
