package delta

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// subscription returns an encoded first request for names.
func subscription(t xds.Type, names ...string) []byte {
	raw := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), t.URL())
	for _, name := range names {
		raw = protowire.AppendString(protowire.AppendTag(raw, 3, protowire.BytesType), name)
	}
	return raw
}

// great returns a set of n clusters with endpoints, and one route configuration.
func great(n int) (set *manifest.Set, names []string) {
	set = &manifest.Set{Revision: 1}
	var clusters, endpoints []*xds.Resource
	for i := range n {
		name := fmt.Sprintf("outbound|80||service-%04d.shop.svc.cluster.local", i)
		c := thing(xds.Cluster, name+"@1")
		c.Needs = []xds.Ref{{Type: xds.Endpoint, Name: c.Name}}
		e := thing(xds.Endpoint, name+"@1")
		clusters, endpoints, names = append(clusters, c), append(endpoints, e), append(names, e.Name)
	}
	set.Types[xds.Cluster][manifest.Scope] = manifest.Of(clusters...)
	set.Types[xds.Endpoint][manifest.Scope] = manifest.Of(endpoints...)
	set.Types[xds.Route][manifest.Scope] = manifest.Of(thing(xds.Route, "80@1"))
	return set, names
}

// join exchanges the requests and responses of a proxy without resources until it has all; it returns their number.
func join(t testing.TB, s *State, requests ...[]byte) (resources int) {
	say := func(raw []byte) {
		m, err := ParseDelta(raw)
		if err != nil {
			t.Fatal(err)
		}
		s.Request(m.Request, nil)
	}
	var late []Reply // clusters are acknowledged after their endpoints
	for _, raw := range requests {
		say(raw)
		for r, ok := s.Next(); ok; r, ok = s.Next() {
			resources += len(r.Set)
			if r.Type == xds.Cluster {
				late = append(late, r)
				continue
			}
			s.Request(Request{Type: r.Type, Nonce: r.Nonce}, nil)
		}
	}
	for _, r := range late {
		s.Request(Request{Type: r.Type, Nonce: r.Nonce}, nil)
	}
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		resources += len(r.Set)
		s.Request(Request{Type: r.Type, Nonce: r.Nonce}, nil)
	}
	return resources
}

// BenchmarkJoin measures the protocol's work for a proxy that joins without resources, in a mesh of 1,000 clusters.
func BenchmarkJoin(b *testing.B) {
	set, names := great(1000)
	shared := &Names{}
	requests := [][]byte{subscription(xds.Cluster), subscription(xds.Endpoint, names...), subscription(xds.Route, "80")}
	b.ReportAllocs()
	for b.Loop() {
		if n := join(b, New(Config{Names: shared}, set), requests...); n != 2001 {
			b.Fatalf("%d resources", n)
		}
	}
}

// BenchmarkResume measures it for a proxy that has all resources.
func BenchmarkResume(b *testing.B) {
	set, names := great(1000)
	shared := &Names{}
	held := func(t xds.Type) (all [][2]string) {
		for r := range set.Types[t].All() {
			all = append(all, [2]string{r.Name, r.Version})
		}
		return all
	}
	requests := [][]byte{firstRequest(xds.Cluster, held(xds.Cluster)), append(firstRequest(xds.Endpoint, held(xds.Endpoint)), subscription(xds.Endpoint, names...)...)}
	b.ReportAllocs()
	for b.Loop() {
		if n := join(b, New(Config{Names: shared}, set), requests...); n != 0 {
			b.Fatalf("%d resources", n)
		}
	}
}

// A joining proxy needs no override for each name: beside names and lists, its allocations do not grow with the names.
func TestJoinBuildsNoMaps(t *testing.T) {
	set, names := great(500)
	s := New(Config{}, set)
	for _, raw := range [][]byte{subscription(xds.Cluster), subscription(xds.Endpoint, names...)} {
		m, err := ParseDelta(raw)
		if err != nil {
			t.Fatal(err)
		}
		s.Request(m.Request, nil)
		for range 5 {
			s.Next()
			for i := range s.types {
				if n := len(s.types[i].overrides); n > 0 {
					t.Fatalf("%d overrides of type %v", n, xds.Type(i))
				}
			}
		}
	}
}

// A client that claims all existing resources and subscribes to one more name receives a response for that name.
func TestResumeAsksForMore(t *testing.T) {
	set, names := great(3)
	var held [][2]string
	for r := range set.Types[xds.Endpoint].All() {
		held = append(held, [2]string{r.Name, r.Version})
	}
	s := New(Config{}, set)
	m, err := ParseDelta(append(firstRequest(xds.Endpoint, held), subscription(xds.Endpoint, append(names, "absent")...)...))
	if err != nil {
		t.Fatal(err)
	}
	s.Request(m.Request, nil)
	if r, ok := s.Next(); !ok || len(r.Set) != 1 || r.Set[0].Name != "absent" {
		t.Errorf("answered %v %v, want an empty assignment for the one that there is not", ok, r)
	}
}

// BenchmarkRemovals is the protocol's work for one proxy when 1,000 of 1,500 clusters are deleted at once. The proxy
// unsubscribes from their endpoints.
func BenchmarkRemovals(b *testing.B) {
	set, names := great(1500)
	left := &manifest.Set{Revision: 2, Types: set.Types}
	for _, t := range []xds.Type{xds.Cluster, xds.Endpoint} {
		left.Types[t][manifest.Scope] = set.Types[t][manifest.Scope].With(nil, names[500:])
	}
	left.Types[xds.Route][manifest.Scope] = manifest.Of(thing(xds.Route, "80@2"))
	cfg := Config{Names: &Names{}, Diffs: &Diffs{}}
	requests := [][]byte{subscription(xds.Cluster), subscription(xds.Endpoint, names...), subscription(xds.Route, "80")}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := New(cfg, set)
		join(b, s, requests...)
		b.StartTimer()
		s.Target(left)
		removed := 0
		for r, ok := s.Next(); ok; r, ok = s.Next() {
			again := Request{Type: r.Type, Nonce: r.Nonce}
			if s.Request(again, nil); r.Type == xds.Cluster {
				removed += len(r.Removed)
				s.Request(Request{Type: xds.Endpoint, Unsubscribe: slices.Values(r.Removed)}, nil)
			}
		}
		if removed != 1000 {
			b.Fatalf("%d clusters were removed", removed)
		}
	}
}
