package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv/kvtest"
)

// A replica without state starts on an etcd that was restored from a backup, at the address that an agent uses. It
// reads the stored state, and serves it to clients without newer state. The agent, which has newer state, is refused,
// and its Envoy keeps its configuration. When a replica with the newer state is back, it serves the agent, and the
// Envoy has received nothing older meanwhile.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestFreshReplicaOnARestoredEtcd(t *testing.T) {
	for _, way := range []string{"new cluster id", "same id", "bumped"} {
		t.Run(way, func(t *testing.T) {
			parallel(t)
			etcd := kvtest.Start(t)
			s := sealableIn(t, etcd)
			leader := s.start("--roles=ingest")
			state := t.TempDir()
			remembers := s.start("--roles=xds,ca", "--state-dir", state)
			eventually(t, patience, has(t, remembers, webCluster))
			eventually(t, patience, remembers.ready)
			roots := s.trust()
			leader.stop(t)
			backup := etcd.Restored()[way]

			leader = s.start("--roles=ingest")
			agent := runAgent(t, remembers, s.data, roots, "web", "127.0.0.1")
			write(t, s.dir, "young.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: young, namespace: shop}\nspec: {clusterIP: 10.0.1.9, ports: [{name: http, port: 80}]}\n")
			young := func() error {
				dump, err := get(agent.admin, "/config_dump?resource=dynamic_active_clusters")
				if err == nil && !strings.Contains(dump, "outbound|80||young.shop.svc.cluster.local") {
					err = fmt.Errorf("Envoy does not have the newer cluster: %.300s", dump)
				}
				return err
			}
			eventually(t, patience, young)
			eventually(t, patience, remembered(state, "Service//files/shop/young"))
			leader.stop(t)
			etcd.Restart(backup)
			remembers.kill()

			fresh := remembers.again(t, navarchd(t), append(append([]string{}, s.flags...), "--roles=xds,ca")...)
			eventually(t, patience, has(t, fresh, webCluster))
			if err := has(t, fresh, strings.Replace(webCluster, "web", "young", 1))(); err == nil {
				t.Fatal("it was not restored: nothing is shown here")
			}
			eventually(t, patience, func() error {
				page, err := agent.page()
				if err == nil && !strings.Contains(page.XDS.LastError, "lags behind") {
					err = fmt.Errorf("the agent was not turned away: %+v", page)
				}
				return err
			})
			if err := serving(fresh)(); err == nil {
				t.Error("the agent was let in where older state is served")
			}
			fresh.kill()

			back := fresh.again(t, navarchd(t), append(append([]string{}, s.flags...), "--roles=xds,ca", "--state-dir", state)...)
			eventually(t, patience, func() error {
				if err := young(); err != nil {
					t.Fatalf("something older: %v", err)
				}
				return serving(back)()
			})
			if err := young(); err != nil {
				t.Errorf("served by the one that remembers: %v", err)
			}
		})
	}
}

// serving returns a check that a replica serves the agent's Envoy.
func serving(d *daemon) func() error {
	return func() error {
		page, err := get(d.http, "/debug/syncz")
		if err == nil && !strings.Contains(page, "web-0.shop") {
			err = fmt.Errorf("the agent is not connected: %s", page)
		}
		return err
	}
}

// remembered returns a check that the snapshot in a state folder contains a record.
func remembered(state, path string) func() error {
	return func() error {
		raw, err := os.ReadFile(filepath.Join(state, "snapshot"))
		if err == nil && !strings.Contains(string(raw), path) {
			err = fmt.Errorf("the snapshot of %d bytes has no %s", len(raw), path)
		}
		return err
	}
}
