package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// node returns the node of a sidecar in one namespace.
func node(namespace int) view.Node {
	ns := fmt.Sprintf("ns-%03d", namespace)
	return view.Node{ID: "sidecar~10.9.0.1~client." + ns + "~" + ns + ".svc.cluster.local", Name: "client", Namespace: ns,
		Domain: view.DefaultDomain, Addresses: []string{"10.9.0.1"}, Labels: map[string]string{"app": "client"},
		Caps: xds.StockCaps}
}

func snapshotOf(w mesh) *mirror.Snapshot { return mirror.Empty().Apply(1, w.records(), nil).New }

// BenchmarkEdit measures plan and build of an edit of one service, which ten namespaces see; sending is left out. The
// result should not grow with the number of services.
func BenchmarkEdit(b *testing.B) {
	for _, services := range []int{500, 1000, 2000, 4000} {
		w := mesh{services}
		edits := map[string]func(edition int) model.Record{
			"endpoint":       func(edition int) model.Record { return w.endpoints(7, 3+edition%2) },
			"virtualservice": func(edition int) model.Record { return w.virtualService(7, edition) },
		}
		for _, name := range []string{"endpoint", "virtualservice"} {
			b.Run(fmt.Sprintf("%s/services=%d", name, services), func(b *testing.B) {
				snapshot := snapshotOf(w)
				planner := plan.New(plan.Settings{Snapshot: snapshot})
				for ns := range 10 {
					planner.Join(node(ns))
				}
				b.ResetTimer()
				for i := range b.N {
					change := snapshot.Apply(int64(i+2), []model.Record{edits[name](i)}, nil)
					snapshot = change.New
					planner.Apply(change)
				}
			})
		}
	}
}

// BenchmarkJoin measures the join of the first proxy of a namespace: its whole outbound side is planned, and the parts
// are built that no other namespace has.
func BenchmarkJoin(b *testing.B) {
	for _, services := range []int{500, 1000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			planner := plan.New(plan.Settings{Snapshot: snapshotOf(mesh{services})})
			planner.Join(node(0))
			for i := range b.N {
				planner.Leave(planner.Join(node(1 + i%(services/10-1))))
			}
		})
	}
}

// BenchmarkStart measures the start of a replica from an etcd with 1,000 services and 4,000 endpoints, until its
// snapshot is complete and the first proxy is planned. Target: 2 s.
func BenchmarkStart(b *testing.B) {
	etcd := kvtest.Start(b)
	fill(b, etcd.Store, mesh{1000})
	for range b.N {
		ctx, cancel := context.WithCancel(b.Context())
		m, err := mirror.New(mirror.Config{Source: etcd.Connect(), Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		changes, stop := m.Subscribe()
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		change, err := changes.Get(ctx)
		if err != nil {
			b.Fatal(err)
		}
		planner := plan.New(plan.Settings{Snapshot: change.New})
		if set := planner.Join(node(0)).Set(); set.Types[xds.Cluster].Len() < 2000 {
			b.Fatalf("%d clusters", set.Types[xds.Cluster].Len())
		}
		stop()
		cancel()
		<-done
	}
}

// fill writes a mesh as a leader does.
func fill(b *testing.B, store *kv.Store, w mesh) {
	b.Helper()
	elector, err := lead.New(lead.Config{Store: store, Name: "bench", Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var failed error
	err = elector.Run(ctx, func(ctx context.Context, epoch kv.Epoch) error {
		_, failed = store.Commit(ctx, kv.Batch{Epoch: epoch, Place: kv.Place{Seq: 1}, Puts: w.records()})
		cancel()
		return nil
	})
	if failed != nil {
		b.Fatal(failed, err)
	}
}

// BenchmarkSnapshotMemory measures the heap of a snapshot of 1,000 services and 4,000 endpoints, decoded from canonical
// bytes as a mirror does. Target: 100 MB.
func BenchmarkSnapshotMemory(b *testing.B) {
	var encoded [][]byte
	var keys []model.Key
	for _, r := range (mesh{1000}).records() {
		raw, err := model.Encode(r)
		if err != nil {
			b.Fatal(err)
		}
		encoded, keys = append(encoded, raw), append(keys, r.Meta().Key)
	}
	var held *mirror.Snapshot
	for range b.N {
		before := heap()
		var records []model.Record
		for i, raw := range encoded {
			r, err := model.Decode(keys[i], raw)
			if err != nil {
				b.Fatal(err)
			}
			records = append(records, r)
		}
		held = mirror.Empty().Apply(1, records, nil).New
		records = nil
		b.ReportMetric(float64(heap()-before)/1e6, "MB")
	}
	runtime.KeepAlive(held)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
