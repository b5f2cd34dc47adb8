//go:build !race

package plan

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// podsAt returns Pods of ns0 with the label app=attack.
func podsAt(t testing.TB, n int, network string) (all []model.Record) {
	for i := range n {
		all = append(all, rec(t, model.KindWorkload, fmt.Sprintf("ns0/p%d", i), fmt.Sprintf("{source: WORKLOAD_SOURCE_POD, endpoint: "+
			"{address: %s.%d.%d, namespace: ns0, serviceAccount: web, labels: {app: attack}, health: HEALTH_READY}}", network, i/250, i%250)))
	}
	return all
}

// entrySelecting returns a ServiceEntry that selects these Pods.
func entrySelecting(t testing.TB, name string, hosts, ports int) model.Record {
	var h, p strings.Builder
	for i := range hosts {
		fmt.Fprintf(&h, "h%d.%s.example, ", i, name)
	}
	for i := range ports {
		fmt.Fprintf(&p, "{name: p%d, number: %d, protocol: PROTOCOL_HTTP}, ", i, 1000+i)
	}
	return rec(t, model.KindServiceEntry, "ns0/"+name, fmt.Sprintf("hosts: [%s]\nexportTo: ['*']\nexternal: true\nresolution: RESOLUTION_EDS\n"+
		"selector: {app: attack}\nports: [%s]", &h, &p))
}

// Clusters that share selected endpoints share their memory: 1.4 million endpoints of 1,444 clusters take a few
// megabytes, with a proxy that gets all of them. An edit of one Pod is planned in pieces of a few allocations each.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestSelectedEndpointsAreShared(t *testing.T) {
	const pods, hosts, ports = 1000, 38, 38
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	r := resolve.New(nil)
	c := r.Step(mirror.Diff(mirror.Empty(), bigMesh(t, 20).Apply(2, podsAt(t, pods, "10.9"), nil).New))
	shared := &pool.Pool{}
	p := New(Settings{Pool: shared, Snapshot: c.New})
	h := p.Join(node("ns1", "a"))
	before := live()
	p.Apply(r.Step(r.Source().Apply(3, []model.Record{entrySelecting(t, "attack", hosts, ports)}, nil)))
	if grown := live() - before; grown > 32<<20 {
		t.Errorf("%d clusters of %d endpoints take %d MB", hosts*ports, pods, grown>>20)
	}
	if bad := p.Check(h); len(bad) > 0 {
		t.Error(bad)
	}
	_, most, count := pieces(p, shared, r.Step(r.Source().Apply(4, podsAt(t, 1, "10.8"), nil)), node("ns2", "b"))
	if most.resources > 8 || most.objects > 5000 || count < 100 {
		t.Errorf("one of %d pieces makes %d resources and %d objects", count, most.resources, most.objects)
	}
}
