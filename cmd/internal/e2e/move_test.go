package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"navarch.io/navarch/shard/ring"
)

// taker is a name for a second replica that will own a namespace, as the ring is made under a load.
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

// load is of the agents, and of one proxy of a namespace; each has a namespace of its own.
func (c *crowd) load(namespace string) ring.Load {
	load := ring.Load{Namespaces: map[string]ring.NamespaceLoad{namespace: {Streams: 1}}}
	for _, a := range c.agents {
		load.Namespaces[a.namespace] = ring.NamespaceLoad{Streams: 1}
	}
	return load
}

// An agent with a certificate and a real Envoy moves to the replica that owns it when that joins, and back when that is asked
// to stop: over mTLS, make before break. Envoy's one stream lives through it. The one that stops waits for that and for no
// more: it may take ten minutes, and ends as soon as the agent is gone.
func TestAgentMoves(t *testing.T) {
	data := t.TempDir()
	t.Setenv("POD_NAME", "first")
	first := start(t, "--config-dir", folder(t), "--data-dir", data, "--replica-ramp", "0s", "--replica-lease", "2s")
	eventually(t, patience, serves(t, first, 1))
	p := runAgent(t, first, data, filepath.Join(data, "root-cert.pem"), "web", "127.0.0.1")
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
	others := gather(t)
	others.grow(11, false, func() []string { return []string{first.grpc} })
	// What the second one takes over goes by what is known of the load.
	eventually(t, patience, func() error { return first.metric("navarch_fleet_proxies_per_replica 12") })
	t.Setenv("POD_NAME", taker(t, "first", "shop", others.load("shop")))
	second := start(t, "--roles=xds,ca", "--etcd-endpoints", "unix://"+filepath.Join(data, "etcd.sock"), "--kek", "file:"+filepath.Join(data, "kek.key"),
		"--replica-ramp", "0s", "--replica-lease", "2s", "--shutdown-duration", "10m")
	eventually(t, patience, at(second, 1))
	second.stop(t)
	eventually(t, patience, at(first, 2))
}
