package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// bigSlice is the EndpointSlice of a Service of the town with so many endpoints.
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
		fmt.Fprintf(&b, "\n- {addresses: [10.8.0.%d], conditions: {ready: true}}", i+1)
	}
	return b.String() + "\n" // a last line without an end could be half of one, and would be waited for (store/source/files)
}

// A workload that is scaled from 100 Pods to 5, and to none, is no loss that anything holds up (issue 12, item 17): every proxy has
// acknowledged the change within 150 ms of the edit.
func TestFaultScaledWorkload(t *testing.T) {
	parallel(t)
	n, proxies := 30, sized(t, 20, 1000, "proxies")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, n)
	write(t, dir, "big.yaml", bigSlice(100))
	leader := start(t, "--roles=ingest", "--config-dir", dir, store)
	replica := xdsReplica(t, store)
	eventually(t, patience, whole(t, replica, n, 1))
	f := fleet(t, proxies, sim.Config{}, replica)
	quiet(t, f)
	for _, endpoints := range []int{5, 0} {
		p := f.Watch(sim.Change{Type: xds.Endpoint, Name: "outbound|80||s000.town.svc.cluster.local"})
		began := time.Now()
		p.Committed(began)
		write(t, dir, "big.yaml", bigSlice(endpoints))
		o := acknowledged(t, p)
		slowestWithin(t, 150*time.Millisecond, o.Ack.Max(), began, fmt.Sprintf("the last ACK of a scale to %d", endpoints))
	}
	if all, err := leader.problems(); err != nil || len(all) > 0 {
		t.Errorf("problems of the leader: %+v, %v", all, err)
	}
	unharmed(t, f)
	undisturbed(t, f)
}
