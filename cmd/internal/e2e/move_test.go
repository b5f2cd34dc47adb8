package e2e

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/shard/ring"
)

// taker returns a name for a second replica that will own a namespace, according to the ring under a load.
func taker(t *testing.T, first, namespace string, load ring.Load) string {
	t.Helper()
	one := ring.Member{Name: first, Weight: ring.FullWeight}
	for i := range 64 {
		two := ring.Member{Name: fmt.Sprintf("second-%d", i), Weight: ring.FullWeight}
		next := ring.Assign(ring.Assign(nil, []ring.Member{one}, load), []ring.Member{one, two}, load)
		if owner, _ := ring.Owner(next, namespace, ""); owner.Name == two.Name {
			return two.Name
		}
	}
	t.Fatal("no name takes it over")
	return ""
}

// load returns a load of one stream for each agent, each in its own namespace, and one stream in the given namespace.
func (c *crowd) load(namespace string) ring.Load {
	load := ring.Load{Namespaces: map[string]ring.NamespaceLoad{namespace: {Streams: 1}}}
	for _, a := range c.agents {
		load.Namespaces[a.namespace] = ring.NamespaceLoad{Streams: 1}
	}
	return load
}

// An agent with a certificate and a real Envoy moves to the owning replica when that joins, and back when it stops:
// over mTLS, make before break. Envoy is not affected: its one stream stays open, its counters of configuration are
// unchanged, and no request fails, even one that lasts from before to after. The stopping replica waits for the agent
// only: with a limit of ten minutes, it ends as soon as the agent has left.
func TestAgentMoves(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	dir, net := shopFolder(t)
	finish := backEnd(t, net)
	first := startNamed(t, "first", "--config-dir", dir, "--data-dir", data, "--replica-ramp", "0s", "--replica-lease", "30s")
	eventually(t, patience, serves(t, first, 1))
	p := runAgent(t, first, data, filepath.Join(data, "root-cert.pem"), "web", net+".1")
	at := func(d *daemon, moves uint64) func() error {
		return func() error {
			page, err := p.page()
			if err == nil && (!page.Ready || !page.XDS.AtOwner || page.XDS.Upstream != d.secure || page.XDS.Moves != moves || page.XDS.StreamsOpened != 1) {
				err = fmt.Errorf("want %s after %d moves: %+v", d.secure, moves, page.XDS)
			}
			return err
		}
	}
	eventually(t, patience, at(first, 0))
	f := flow(t, net)
	others := gather(t)
	others.grow(11, false, func() []string { return []string{first.grpc} })
	// The shards that the second replica takes over depend on the known load.
	eventually(t, patience, func() error { return first.metric("navarch_fleet_proxies_per_replica 12") })
	taker := taker(t, "first", "shop", others.load("shop"))
	before, asked := p.notices(t), f.fine(t)
	second := startNamed(t, taker, "--roles=xds,ca", "--etcd-endpoints", "unix://"+filepath.Join(data, "etcd.sock"), "--kek", "file:"+filepath.Join(data, "kek.key"),
		"--replica-ramp", "0s", "--replica-lease", "30s", "--shutdown-duration", "10m")
	eventually(t, patience, at(second, 1))
	second.stop(t)
	eventually(t, patience, at(first, 2))
	finish()
	if end, err := io.ReadAll(f.long.Body); err != nil || string(end) != "begun, over" {
		t.Errorf("the request that was under way: %q, %v", end, err)
	}
	f.halt()
	if n := f.fine(t) - asked; n < 100 {
		t.Errorf("%d requests: the test shows less than it should", n)
	}
	after := p.notices(t)
	for name, n := range before {
		if after[name] != n {
			t.Errorf("Envoy has noticed: %s was %d and is %d", name, n, after[name])
		}
	}
}

// notices returns Envoy's counters of received and applied configuration, and of requests that it could not serve.
func (p proxy) notices(t *testing.T) map[string]int {
	t.Helper()
	stats, err := envoytest.Stats(p.admin)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(stats, func(name string, _ int) bool {
		return !slices.ContainsFunc([]string{".update_success", ".update_attempt", ".update_failure", ".update_rejected", ".update_empty", ".update_no_rebuild",
			".config_reload", ".cluster_added", ".cluster_modified", ".cluster_removed", ".listener_added", ".listener_modified", ".listener_removed",
			".listener_in_place_updated", ".total_listeners_draining", ".downstream_rq_5xx", ".downstream_cx_drain_close"},
			func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	})
	if stats["cluster_manager.cds.update_success"] == 0 || stats["listener_manager.lds.update_success"] == 0 {
		t.Fatalf("counters of Envoy: %v", stats)
	}
	return stats
}
