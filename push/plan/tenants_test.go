package plan

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// tenantOf returns what a tenant of 100 hosts has at a gateway: a Gateway, with an HTTPS server for one tenant in
// fifty and an HTTP server, and a VirtualService with three rules.
func tenantOf(t testing.TB, i int) []model.Record {
	var hosts []string
	for j := range 100 {
		hosts = append(hosts, fmt.Sprintf("h%d.tenant-%d.example.com", j, i))
	}
	list := strings.Join(hosts, ", ")
	rule := "{match: [{uri: {prefix: /%s}}], route: [{destination: {host: s0.a.svc.cluster.local}}]}"
	https := ""
	if i%50 == 0 {
		https = fmt.Sprintf("{port: {number: 443, name: https, protocol: HTTPS}, hosts: [%s], tls: {mode: SIMPLE, credentialName: cert-%d}}, ", list, i)
	}
	return []model.Record{
		rec(t, model.KindGateway, fmt.Sprintf("tenant-%d/gw@%d", i, i+1), fmt.Sprintf("{selector: {app: gw}, servers: ["+
			"%s{port: {number: 80, name: http, protocol: HTTP}, hosts: [%s]}]}", https, list)),
		rec(t, model.KindVirtualService, fmt.Sprintf("tenant-%d/v@%d", i, i+1), fmt.Sprintf("{hosts: [%s], gateways: [tenant-%d/gw], http: [%s, %s, %s]}",
			list, i, fmt.Sprintf(rule, "a"), fmt.Sprintf(rule, "b"), fmt.Sprintf(rule, "c"))),
	}
}

// tenantsOfGateway plans a gateway of n tenants of 100 hosts. It returns the bytes that the gateway is sent, and the
// heap that the planner keeps beside the records.
func tenantsOfGateway(t testing.TB, n int) (p *Planner, shared *pool.Pool, sent, heap int) {
	records := []model.Record{svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), eps(t, "a/s0-1", "{name: http, number: 8080}", "10.1.0.1")}
	for i := range n {
		records = append(records, tenantOf(t, i)...)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	shared = &pool.Pool{}
	p = New(Settings{Pool: shared, Snapshot: snapshot(records...)})
	gw := p.Join(routerOf("edge", "gw"))
	for kind := range xds.NumTypes {
		for _, r := range gw.Set().Types[kind].Sorted() {
			sent += len(r.Body())
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	return p, shared, sent, int(after.HeapAlloc) - int(before.HeapAlloc)
}

// Bytes that a host with three rules costs a gateway and a replica, as the security page states them for 100,000.
const mostSent, mostHeap = 1400, 4900

// Hosts of a gateway's tenants stay within the size that the security page states. An edit of one tenant encodes its
// own virtual hosts alone.
// Promise: security-gateways.md#make-a-gateway-fail
func TestTenantsOfAGateway(t *testing.T) {
	const tenants = 100
	p, shared, sent, heap := tenantsOfGateway(t, tenants)
	if sent /= 100 * tenants; sent > mostSent {
		t.Errorf("%d bytes are sent for each host, want at most %d", sent, mostSent)
	}
	if heap /= 100 * tenants; heap > mostHeap {
		t.Errorf("%d bytes are kept for each host, want at most %d", heap, mostHeap)
	}
	changed := tenantOf(t, 51)[1].(*model.VirtualService)
	changed.Spec.Http = changed.Spec.Http[1:]
	r, err := model.New(changed.Key, changed.Created, changed.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := measure(shared, func() { edited(p, r) }); got != (work{routes: 1, hosts: 100}) {
		t.Errorf("an edit of one tenant encodes %+v", got)
	}
}

// BenchmarkTenantsOfAGateway measures 1,000 tenants of 100 hosts.
func BenchmarkTenantsOfAGateway(b *testing.B) {
	for b.Loop() {
		_, _, sent, heap := tenantsOfGateway(b, 1000)
		b.ReportMetric(float64(sent)/(1<<20), "MiB-sent")
		b.ReportMetric(float64(heap)/(1<<20), "MiB-kept")
	}
}
