package serve

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// A stream is woken once when its routes have waited long enough for their clusters. If the routes cannot be sent then,
// because the client has not acknowledged earlier ones, the acknowledgement wakes the stream; until then it requests no
// turns.
func TestStreamIsNotWokenInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(clusters, routes *manifest.Manifest) *manifest.Set {
			return &manifest.Set{Types: [xds.NumTypes]manifest.Stack{xds.Cluster: {clusters}, xds.Route: {routes}}}
		}
		one, two := cluster("one"), cluster("two")
		two.WarmsUnseen = true
		st := streamsOf(t, New(Config{Planner: newPlanner()}), 1, 0)[0]
		proxy := st.proxy.(*stillProxy)
		step := func(acks ...xds.Type) {
			t.Helper()
			st.begin(false, 0)
			for {
				out, f, _ := st.next(time.Now(), nil, &offers{})
				if f != something {
					return
				}
				if slices.Contains(acks, out.reply.Type) {
					st.state.Request(delta.Request{Type: out.reply.Type, Nonce: out.reply.Nonce}, nil)
				}
			}
		}
		proxy.set = set(manifest.Of(one), manifest.Of(paths("a", "one"), paths("b", "one")))
		st.state.Request(delta.Request{Type: xds.Cluster}, nil)
		st.state.Request(delta.Request{Type: xds.Route, Subscribe: slices.Values([]string{"a", "b"})}, nil)
		step(xds.Cluster, xds.Route)
		proxy.set = set(manifest.Of(one, two), manifest.Of(paths("a", "one", "two"), paths("b", "one", "one")))
		step() // "b" is sent and never acknowledged; "a" waits
		var inFlight int
		var wakesAt int64
		st.locked(func() { inFlight, wakesAt = st.state.InFlight(xds.Route), st.wakesAt })
		if inFlight != 1 || wakesAt == 0 {
			t.Fatalf("%d responses with routes in flight, woken at %d", inFlight, wakesAt)
		}
		woken := func(after time.Duration) bool {
			time.Sleep(after)
			synctest.Wait()
			return st.markedAt[fanout.Answers].Swap(0) != 0
		}
		if !woken(delta.Patience) {
			t.Fatal("it is not woken")
		}
		if step(); woken(time.Second) {
			t.Error("it is woken again, and there is nothing to be sent")
		}
	})
}
