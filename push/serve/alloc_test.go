package serve

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// sink is a stream in memory that discards messages.
type sink struct {
	got *response
}

func (*sink) SetHeader(metadata.MD) error  { return nil }
func (*sink) SendHeader(metadata.MD) error { return nil }
func (*sink) SetTrailer(metadata.MD)       {}
func (*sink) Context() context.Context     { return context.Background() }
func (*sink) RecvMsg(any) error            { return nil }
func (s *sink) SendMsg(m any) error        { s.got = m.(*response); return nil }

// pushed returns the allocations for each stream of one push of one changed cluster, in objects and bytes, with
// resources of a given size.
func pushed(t *testing.T, streams, size int) (objects, bytes float64) {
	srv := New(Config{Planner: newPlanner()})
	versions := []*xds.Resource{large("a", size, "0"), large("a", size, "1")}
	sets := make([]*manifest.Set, 2)
	for i, r := range versions {
		r.Buffers()
		sets[i] = &manifest.Set{Revision: int64(i)}
		sets[i].Types[xds.Cluster][manifest.Scope] = manifest.Of(r)
	}
	proxy := &stillProxy{set: sets[0]}
	all := make([]*stream, streams)
	for i := range all {
		st := &stream{srv: srv, grpc: &sink{}, exchange: exchange{proxy: proxy}}
		st.state = delta.New(delta.Config{Diffs: &srv.diffs, Names: &srv.sets}, sets[0])
		st.turn.Store(srv.loop.Join("ns", false, st.send))
		give(t, st, delta.Request{Type: xds.Cluster})
		all[i] = st
	}
	edition := 0
	push := func() {
		edition++
		proxy.set = sets[edition%2]
		for _, st := range all {
			if st.send(false, 0) < size {
				t.Fatal("nothing was sent")
			}
			out := st.grpc.(*sink).got
			if size > 1000 && &out.bufs[1].ReadOnlyData()[0] != &versions[edition%2].Buffers()[0].ReadOnlyData()[0] {
				t.Fatal("the bytes are not the shared ones")
			}
			give(t, st, delta.Request{Type: xds.Cluster, Nonce: st.state.Info(xds.Cluster).Sent})
		}
	}
	edition = 1
	push()
	push()
	const runs = 10
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range runs {
		push()
	}
	runtime.ReadMemStats(&after)
	n := float64(runs * streams)
	return float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n
}

func give(t *testing.T, st *stream, r delta.Request) {
	t.Helper()
	if err := st.advance(delta.Message{Request: r}); err != nil {
		t.Fatal(err)
	}
}

type stillProxy struct{ set *manifest.Set }

func (v *stillProxy) Set() *manifest.Set { return v.set }
func (*stillProxy) Namespace() string    { return "ns" }
func (*stillProxy) ID() string           { return "v" }
func (*stillProxy) Leave()               {}

func (*stillProxy) Confirm(context.Context) error { return nil }

// Encoded bytes are never copied for a stream: the allocations of a push depend neither on the size of the resources
// nor on the number of streams.
func TestPushCopiesNothing(t *testing.T) {
	type point struct{ streams, size int }
	got := map[point][2]float64{}
	for _, p := range []point{{1, 100}, {1, 1 << 20}, {1000, 100}, {1000, 1 << 20}} {
		objects, bytes := pushed(t, p.streams, p.size)
		got[p] = [2]float64{objects, bytes}
		t.Logf("%4d streams, %7d bytes: %.1f objects, %.0f bytes for each stream and push", p.streams, p.size, objects, bytes)
	}
	least := got[point{1000, 100}]
	for p, g := range got {
		if g[0] > least[0]+15 || g[1] > least[1]+3000 {
			t.Errorf("%+v: %.1f objects, %.0f bytes; at best %.1f and %.0f", p, g[0], g[1], least[0], least[1])
		}
	}
	// These allocations dominate the garbage collector's work during a push to thousands of streams.
	if least[0] > 12 || least[1] > 600 {
		t.Errorf("a push allocates %.1f objects, %.0f bytes for each stream", least[0], least[1])
	}
}

// joins makes streams request n clusters and their endpoints, with one cluster of each stream's own. It returns the
// number of resources and segments that the last stream was sent, and the allocations of one of the later streams.
func joins(t *testing.T, n int) (resources, segments int, objects, bytes float64) {
	srv := New(Config{Planner: newPlanner()})
	set := &manifest.Set{Revision: 1}
	var names []string
	var clusters, endpoints []*xds.Resource
	for i := range n {
		name := fmt.Sprintf("outbound|80||service-%05d", i)
		clusters = append(clusters, large(name, 500, "0"))
		e, err := xds.Encode(xds.Endpoint, name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
		if err != nil {
			t.Fatal(err)
		}
		names, endpoints = append(names, name), append(endpoints, e)
	}
	set.Types[xds.Cluster][manifest.Scope], set.Types[xds.Endpoint][manifest.Scope] = manifest.Of(clusters...), manifest.Of(endpoints...)
	join := func(i int) *stream {
		own := *set
		own.Types[xds.Cluster][manifest.Workload] = manifest.Of(large(fmt.Sprintf("inbound|%d||", i), 500, "0"))
		st := &stream{srv: srv, grpc: &sink{}, exchange: exchange{proxy: &stillProxy{set: &own}}}
		st.state = delta.New(delta.Config{Diffs: &srv.diffs, Names: &srv.sets}, &own)
		st.turn.Store(srv.loop.Join("ns", false, st.send))
		segments = 0
		for _, r := range []delta.Request{{Type: xds.Cluster}, {Type: xds.Endpoint, Subscribe: slices.Values(names)}} {
			give(t, st, r)
			st.send(false, 0)
			segments += len(st.grpc.(*sink).got.bufs) - 2
			give(t, st, delta.Request{Type: r.Type, Nonce: strconv.FormatUint(1+uint64(r.Type), 10)})
		}
		if st.send(false, 0) != 0 || st.state.Unacked() != 0 || !st.state.Idle() {
			t.Fatal("not everything was sent and acknowledged")
		}
		return st
	}
	for i := range 3 {
		last := join(i)
		resources = len(last.state.Holding(xds.Cluster)) + len(last.state.Holding(xds.Endpoint))
	}
	const runs = 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range runs {
		join(10 + i)
	}
	runtime.ReadMemStats(&after)
	return resources, segments, float64(after.Mallocs-before.Mallocs) / runs, float64(after.TotalAlloc-before.TotalAlloc) / runs
}

// The first responses to proxies of one scope are encoded once for all of them. A proxy refers to a few encoded
// segments, and allocates less than a pointer for each of a thousand further resources.
func TestFirstAnswersAreReadyMade(t *testing.T) {
	_, _, few, least := joins(t, 100)
	resources, segments, objects, bytes := joins(t, 2100)
	t.Logf("%d resources in %d segments; %.0f objects, %.0f bytes (%.0f and %.0f with 2,000 services less)", resources, segments, objects, bytes, few, least)
	if resources != 4201 {
		t.Fatalf("%d resources", resources)
	}
	if segments > 150 {
		t.Errorf("%d resources are sent in %d segments", resources, segments)
	}
	if more := objects - few; more > 20 {
		t.Errorf("2,000 services more are %.0f objects more for each proxy", more)
	}
	if more := bytes - least; more > 4000*8 {
		t.Errorf("2,000 services more are %.0f bytes more for each proxy", more)
	}
}
