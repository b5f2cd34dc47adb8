package plan

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Proxies add their names and metadata to their spans, and a Telemetry selects some of them. After they have left,
// neither the telemetry of their listeners nor a problem with it is kept.
func TestNothingIsKeptOfProxiesThatLeft(t *testing.T) {
	p := New(Settings{Pool: &pool.Pool{}, Snapshot: mirror.Empty().Apply(1, []model.Record{
		rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, enableTracing: true, defaultConfig: {tracing: {sampling: 7}}, extensionProviders: [{name: lost, envoyTcpAls: {service: gone.example.com, port: 9000}}]}"),
		rec(t, model.KindTelemetry, "a/picked", "{selector: {matchLabels: {app: picked}}, accessLogging: [{providers: [{name: lost}]}]}"),
	}, nil).New})
	first := p.Join(node("a", "first"))
	before := digest(first.planned.Load().scope)
	for i := range 3 {
		n := node("a", fmt.Sprint("other-", i), "app=picked")
		n.Metadata["MESH_ID"] = fmt.Sprint("mesh-", i)
		n.ProxyConfig = settings(t, fmt.Sprintf(`{"tracing": {"sampling": %d}, "proxyHeaders": {"server": {"value": "own-%d"}}}`, i, i))
		h := p.Join(n)
		if got := digest(h.planned.Load().scope); h.planned.Load().scope != first.planned.Load().scope || !strings.Contains(got, n.Metadata["MESH_ID"]) || problemsOf(p, "gone.example.com") == 0 {
			t.Fatalf("another proxy decides nothing: %s", got)
		}
		p.Leave(h)
	}
	if after := digest(first.planned.Load().scope); after != before {
		t.Errorf("proxies left; now there is\n%s\nbefore\n%s", after, before)
	}
	if n := problemsOf(p, "gone.example.com"); n != 0 {
		t.Errorf("%d problems of proxies that left", n)
	}
}

// Telemetries that only set spans do not change the listeners of TCP connections, whose number grows with the services,
// when they are added and when they are edited.
func TestSpansLeaveConnections(t *testing.T) {
	for _, services := range []int{20, 40} {
		shared := &pool.Pool{}
		s := bigMesh(t, services)
		p := New(Settings{Pool: shared, Snapshot: s.Apply(s.Revision()+1, []model.Record{rec(t, model.KindMesh, "/mesh",
			"{rootNamespace: istio-system, enableTracing: true, defaultProviders: {tracing: [spans]}, extensionProviders: [{name: spans, zipkin: {service: s0.ns0.svc.cluster.local, port: 80}}]}")}, nil).New})
		p.Join(node("ns1", "a"))
		for _, sampling := range []int{5, 6} {
			got := measure(shared, func() {
				p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{rec(t, model.KindTelemetry, "ns1/spans", fmt.Sprintf("tracing: [{randomSamplingPercentage: %d}]", sampling))}, nil))
			})
			if want := (work{listeners: 2}); got != want { // that of HTTP, and the inbound one
				t.Errorf("%d services, %d%%: built %+v, want %+v", services, sampling, got, want)
			}
		}
	}
}
