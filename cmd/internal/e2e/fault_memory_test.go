package e2e

import (
	"crypto/tls"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/kv/kvtest"
)

// In a container, more proxies join at once than fit into memory. The kernel does not kill the process: proxies are
// admitted slowly while memory is short, and admitted ones are served. The test runs alone: while the kernel reclaims
// memory in the cgroup, all other processes wait for the disk, for ten seconds and more.
func TestFaultMoreJoinThanMemoryTakes(t *testing.T) {
	const limit, proxies, services = 110 << 20, 2000, 200
	c := newCage(t, limit)
	ca := newAuthority(t)
	ca.issue(t, "server", "")
	ca.issue(t, "client", "spiffe://cluster.local/ns/town/sa/client")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, services)
	start(t, "--roles=ingest", "--config-dir", dir, store)
	d := startProgram(t, c.program(t, binary(t, "navarchd")), nil, "--roles=xds", store,
		"--tls-cert", ca.file("server.crt"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("ca.crt"))
	eventually(t, patience, whole(t, d, services, 1))
	if want := fmt.Sprintf(`msg="memory limit" bytes=%d`, limit*9/10); !strings.Contains(d.log.String(), want) {
		t.Fatalf("it does not know its limit: want %s", want)
	}
	alive := func() {
		t.Helper()
		if n, err := c.kills(); n > 0 || err != nil {
			t.Fatalf("the kernel has killed %d processes for want of memory, %v", n, err)
		}
		select {
		case <-d.exited:
			t.Fatalf("it ended with %v", d.cmd.ProcessState)
		default:
		}
	}
	f := crowdAt(t, proxies, ca, d)
	eventually(t, 3*patience, func() error {
		alive()
		if rate := d.value("navarch_join_rate"); !(rate <= float64(runtime.NumCPU())) { // the slow rate
			return fmt.Errorf("memory is not short: %v may join in a second, %d have", rate, f.Stats().Joined)
		}
		return nil
	})
	for edition := 2; edition <= 4; edition++ {
		o := reaches(t, f, edition, func() { write(t, dir, "town.yaml", town(0, services, edition)) })
		t.Logf("size: edition %d reached %d of %d proxies", edition, o.Acked, proxies)
		alive()
	}
	faultless(t, f)
}

// crowdAt starts a fleet with mTLS that joins one replica at once. It does not wait for the fleet.
func crowdAt(t *testing.T, n int, ca *authority, d *daemon) *sim.Fleet {
	t.Helper()
	roomFor(t, n)
	trust := ca.client(t, "client")
	trust.ServerName, trust.NextProtos = "127.0.0.1", []string{"h2"}
	f, err := sim.New(sim.Config{Addrs: []string{d.secure}, Sample: 100 / float64(n), WarmTimeout: 3 * patience,
		BackOff: time.Second, MaxBackOff: 30 * time.Second, TLS: func(sim.Identity) (*tls.Config, error) { return trust, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.Add(citizens(n)...)
	return f
}
