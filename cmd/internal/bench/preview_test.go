package bench

import (
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// fleet returns a planner with proxies in as many namespaces as there are scopes: in each, those of ten services.
func fleet(snapshot *mirror.Snapshot, w mesh, proxies, scopes int) *plan.Planner {
	planner := plan.New(plan.Settings{Snapshot: snapshot})
	for i := range proxies {
		ns, k := fmt.Sprintf("ns-%03d", i%scopes), i/scopes
		name := fmt.Sprintf("p-%d", k)
		planner.Join(view.Node{ID: "sidecar~10.9.0.1~" + name + "." + ns + "~" + ns + ".svc.cluster.local", Name: name, Namespace: ns,
			Domain: view.DefaultDomain, Addresses: []string{"10.9.0.1"},
			Labels: map[string]string{"app": fmt.Sprintf("svc-%04d", i%scopes+k%10*w.namespaces())}, Caps: xds.StockCaps | xds.CapIdentity})
	}
	return planner
}

// strict is the policy that makes the whole mesh accept mTLS alone.
func strict() model.Record {
	mode := &securityv1.PeerAuthentication_MutualTLS{Mode: securityv1.PeerAuthentication_MutualTLS_STRICT}
	raw, err := proto.Marshal(&securityv1.PeerAuthentication{Mtls: mode})
	if err != nil {
		panic(err)
	}
	return record(model.KindPeerAuthentication, "istio-system", "default", &model.PolicySpec{MeshWide: true, Istio: raw})
}

// BenchmarkPreview measures previews for 20,000 proxies in 50 scopes that see 1,000 services, and the memory that one
// needs. Targets: 0.5 s for a VirtualService, 5 s for STRICT in the root namespace, 64 MB.
func BenchmarkPreview(b *testing.B) {
	w := mesh{1000}
	snapshot := snapshotOf(w)
	planner, resolver := fleet(snapshot, w, 20000, 50), resolve.New(nil)
	resolver.Step(mirror.Diff(mirror.Empty(), snapshot))
	base := func() *plan.Base { return &plan.Base{Planner: planner.Fork(), Resolver: resolver.Fork()} }
	planner.Problems() // a replica knows them, because it reports them
	for name, edit := range map[string]model.Record{"virtualservice": w.virtualService(7, 1), "strict": strict()} {
		b.Run(name, func(b *testing.B) {
			var before, after runtime.MemStats
			for i := range b.N {
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&before)
				b.StartTimer()
				own := base()
				p, err := preview.Of(b.Context(), own, snapshot.Apply(2, []model.Record{edit}, nil), nil)
				b.StopTimer()
				if err != nil || p.Affected() != 20000 {
					b.Fatal(p.Affected(), err)
				}
				if i == b.N-1 {
					runtime.GC()
					runtime.ReadMemStats(&after)
					b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB")
					b.ReportMetric(float64(p.AllViews), "views")
					b.ReportMetric(float64(len(p.Summary.Facts)), "facts")
				}
				runtime.KeepAlive(own)
				runtime.KeepAlive(p)
			}
		})
	}
}
