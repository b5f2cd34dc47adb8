package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// writePod writes one of the Pods behind bigSlice, in its own file.
func writePod(t *testing.T, dir string, i int, terminating bool) {
	t.Helper()
	going := ""
	if terminating {
		going = ", deletionTimestamp: '2026-01-01T00:00:00Z'"
	}
	write(t, dir, podFile(i), fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: s000-%d, namespace: town, labels: {app: s000}%s}\n"+
		"status: {podIP: 10.8.0.%d, conditions: [{type: Ready, status: 'True'}]}\n", i, going, i+1))
}

func podFile(i int) string { return fmt.Sprintf("pod-%d.yaml", i) }

// bigSlice returns the EndpointSlice of a Service of the town with the given number of endpoints.
func bigSlice(endpoints int) string {
	var b strings.Builder
	b.WriteString(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s000-big, namespace: town, labels: {kubernetes.io/service-name: s000}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:`)
	if endpoints == 0 {
		b.WriteString(" []\n")
	}
	for i := range endpoints {
		fmt.Fprintf(&b, "\n- {addresses: [10.8.0.%d], conditions: {ready: true}, targetRef: {kind: Pod, name: s000-%d}}", i+1, i)
	}
	return b.String() + "\n" // without a line break the last line would count as incomplete (store/source/files)
}

// Scaling a workload from 100 Pods to 5, and to 0, is not held as a loss. The Pods are terminating when the slice loses
// them, as Kubernetes writes it, and every proxy acknowledges the change within 150 ms of the edit. Then the Pods are
// deleted, and no removal is held.
func TestFaultScaledWorkload(t *testing.T) {
	parallel(t)
	n, proxies := 30, sized(t, 20, 1000, "proxies")
	etcd := kvtest.Start(t)
	store := "--etcd-endpoints=" + etcd.Endpoint()
	dir := townFolder(t, n)
	for i := range 100 {
		writePod(t, dir, i, false)
	}
	write(t, dir, "slice.yaml", bigSlice(100))
	leader := start(t, "--roles=ingest", "--config-dir", dir, store)
	replica := xdsReplica(t, store)
	eventually(t, patience, whole(t, replica, n, 1))
	f := fleet(t, proxies, sim.Config{}, replica)
	quiet(t, f)
	were := 100
	for _, endpoints := range []int{5, 0} {
		for i := endpoints; i < were; i++ {
			writePod(t, dir, i, true)
		}
		p := f.Watch(sim.Change{Type: xds.Endpoint, Name: "outbound|80||s000.town.svc.cluster.local"})
		began := time.Now()
		p.Committed(began)
		write(t, dir, "slice.yaml", bigSlice(endpoints))
		o := acknowledged(t, p)
		slowestWithin(t, 150*time.Millisecond, o.Ack.Max(), began, fmt.Sprintf("the last ACK of a scale to %d", endpoints))
		for i := endpoints; i < were; i++ {
			if err := os.Remove(filepath.Join(dir, podFile(i))); err != nil {
				t.Fatal(err)
			}
		}
		were = endpoints
	}
	s := opened(t, etcd.Endpoint())
	eventually(t, patience, func() error {
		stored, err := asSaid(t, s)
		if n := stored.Kind("Workload").Count; err == nil && n > 0 {
			err = fmt.Errorf("%d Pods are stored", n)
		}
		return err
	})
	leader.said(t, 0, "is held")
	if all, err := leader.problems(); err != nil || len(all) > 0 {
		t.Errorf("problems of the leader: %+v, %v", all, err)
	}
	unharmed(t, f)
	undisturbed(t, f)
}
