package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// Fault 4, with a CA and a fleet over mTLS: etcd is away, first in silence and then completely. No proxy is disturbed;
// proxies that reconnect are served over TLS. A replica is killed and starts again from its disk. It then serves the
// whole fleet over mTLS, at last alone. It renews certificates from its allowance; a first certificate waits for etcd.
// When etcd is back, changes arrive, and the journal contains the renewed certificates.
func TestFaultEtcdAwayOverTLS(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 30, 300, "services"), sized(t, 60, 2000, "proxies over mTLS")
	etcd := kvtest.Start(t)
	wire := connect(t, etcd.Endpoint())
	dir := townFolder(t, n)
	mesh := newEnrolment(t, "--etcd-endpoints="+etcd.Endpoint())
	leader := start(t, "--roles=ingest", "--config-dir", dir, wire.etcd(), mesh.kek, "--leader-lease", "1s")
	var states []string
	var replicas []*daemon
	for range 2 {
		states = append(states, t.TempDir())
		replicas = append(replicas, mesh.replica(wire.etcd(), "--state-dir", states[len(states)-1]))
	}
	for i, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
		eventually(t, patience, func() error { _, err := os.Stat(filepath.Join(states[i], "snapshot")); return err })
		eventually(t, patience, func() error { return d.metric("navarch_keyring_allowance 10000") })
	}
	mesh.by(replicas[0])
	f := mesh.fleet(proxies, sim.Config{}, replicas...)

	wire.set(rule{hold: true})
	eventually(t, patience, leader.following)
	comeBack(t, f, proxies, n, replicas[0], "in silence")
	for _, d := range replicas {
		eventually(t, patience, d.lonely)
	}
	wire.set(rule{refuse: true})
	wire.drop()
	etcd.Stop()
	comeBack(t, f, proxies, n, replicas[1], "gone")
	undisturbed(t, f)
	for gone := time.Now(); faultScale >= fullScale && time.Since(gone) < 10*time.Minute; { // the duration in fault 4
		<-time.After(time.Minute) // identities may not join more often
		undisturbed(t, f)
		comeBack(t, f, proxies, n, replicas[1], fmt.Sprintf("gone for %.0f s", time.Since(gone).Seconds()))
		undisturbed(t, f)
	}
	waits := make(chan error, 1)
	go func() { _, _, err := mesh.first(t.Context(), replicas[0].secure, "town", "newcomer"); waits <- err }()

	// The second replica is killed, and starts from its disk; then the first is killed, so that all proxies connect to the
	// second.
	resumed(t, f, proxies/2, func() { replicas[1].kill() })
	again := replicas[1].again(t, navarchd(t), append([]string{"--roles=xds,ca", wire.etcd(), "--state-dir", states[1]}, mesh.more...)...)
	eventually(t, patience, whole(t, again, n, 1))
	eventually(t, patience, mesh.answers(again)) // the replica reads the keyring concurrently with the configuration
	renewed := mesh.renewAll(again.secure)
	select {
	case err := <-waits:
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a first certificate while etcd is away: %v", err)
		}
	default: // the first certificate waits
	}
	killed := time.Now()
	resumed(t, f, proxies, func() { replicas[0].kill() })
	within(t, 30*time.Second, time.Since(killed), "all are served by the replica that started from its disk")
	eventually(t, patience, again.ready)
	comeBack(t, f, proxies, n, again, "from its disk")

	reaches(t, f, 2, func() {
		write(t, dir, "town.yaml", town(0, n, 2))
		etcd.Restart(etcd.Dir())
		wire.set(rule{})
	})
	eventually(t, patience, journalled(t, etcd.Endpoint(), renewed))
	if _, _, err := mesh.first(t.Context(), again.secure, "town", "newcomer"); err != nil {
		t.Errorf("a first certificate once etcd is back: %v", err)
	}
	unharmed(t, f)
}

// answers returns a check that a replica has a serving certificate.
func (e *enrolment) answers(d *daemon) func() error {
	return func() error {
		conn, err := tls.Dial("tcp", d.secure, e.client())
		if err == nil {
			err = conn.Close()
		}
		return err
	}
}

// renewAll renews the certificates of all proxies by certificate, and installs the new ones. It returns the new serial
// number by the old one.
func (e *enrolment) renewAll(address string) map[string]string {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	began, replaced := time.Now(), map[string]string{}
	for i, old := range e.leaves {
		var leaf tls.Certificate
		eventually(e.t, patience, func() (err error) { // the replica compares its clock first
			leaf, _, err = e.renewed(e.t.Context(), address, old)
			return err
		})
		e.leaves[i] = leaf
		replaced[serial(leaf)] = serial(old)
	}
	e.t.Logf("size: %d certificates were renewed in %.1f s", len(replaced), time.Since(began).Seconds())
	return replaced
}

func serial(leaf tls.Certificate) string { return issue.SerialString(leaf.Leaf.SerialNumber) }

// journalled checks that etcd's journal contains certificates, by serial number, each with the serial number of the
// certificate that it replaced.
func journalled(t testing.TB, endpoint string, want map[string]string) func() error {
	store := opened(t, endpoint)
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		has := map[string]string{}
		err := store.EachBlob(ctx, "certificates/", func(b kv.Blob) error {
			var batch []keyring.Issue
			err := json.Unmarshal(b.Raw, &batch)
			for _, i := range batch {
				has[i.Serial] = i.Previous
			}
			return err
		})
		for serial, previous := range want {
			if was, there := has[serial]; !there || was != previous {
				err = errors.Join(err, fmt.Errorf("%s, in the place of %s, is not in the journal, of %d", serial, previous, len(has)))
				break
			}
		}
		return err
	}
}
