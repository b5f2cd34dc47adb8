package delta

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var sample = &discoveryv3.DeltaDiscoveryRequest{
	Node: &corev3.Node{Id: "n"}, TypeUrl: xds.Endpoint.URL(), ResourceNamesSubscribe: []string{"a", "b"}, ResourceNamesUnsubscribe: []string{"c"},
	InitialResourceVersions: map[string]string{"a": "1", "d": ""}, ResponseNonce: "7", ErrorDetail: &status.Status{Code: 13, Message: "why"},
}

// inOrder returns the names of a list, in order; nil for a missing list.
func inOrder(names iter.Seq[string]) []string {
	if names == nil {
		return nil
	}
	return slices.Collect(names)
}

// sameDelta compares the results of the parser and of protobuf.
func sameDelta(m Message, p *discoveryv3.DeltaDiscoveryRequest) error {
	initial := map[string]string{}
	if m.Initial != nil {
		initial = maps.Collect(m.Initial)
	}
	switch {
	case m.TypeURL != p.TypeUrl, m.Nonce != p.ResponseNonce, m.Failed != (p.ErrorDetail != nil):
		return fmt.Errorf("scalars: %+v", m)
	case !slices.Equal(inOrder(m.Subscribe), p.ResourceNamesSubscribe), !slices.Equal(inOrder(m.Unsubscribe), p.ResourceNamesUnsubscribe):
		return fmt.Errorf("names: %q %q", inOrder(m.Subscribe), inOrder(m.Unsubscribe))
	case !maps.Equal(initial, p.InitialResourceVersions) && len(initial)+len(p.InitialResourceVersions) > 0:
		return fmt.Errorf("initial versions: %q", initial)
	case m.Error != p.GetErrorDetail().GetMessage():
		return fmt.Errorf("error: %q", m.Error)
	case (m.Node != nil) != (p.Node != nil):
		return fmt.Errorf("node: %q", m.Node)
	}
	return nil
}

func TestParseDelta(t *testing.T) {
	m, err := ParseDelta(marshal(t, sample))
	if err != nil {
		t.Fatal(err)
	}
	if err := sameDelta(m, sample); err != nil || m.Type != xds.Endpoint {
		t.Error(err, m.Type)
	}
	for name, raw := range map[string][]byte{
		"garbage":            []byte("GET / HTTP/1.1\r\n\r\n"),
		"cut":                marshal(t, sample)[:20],
		"name not UTF-8":     protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), []byte{0xff}),
		"versions not a map": protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), []byte{0xff}),
	} {
		if _, err := ParseDelta(raw); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseSotW(t *testing.T) {
	m, err := ParseSotW(marshal(t, &discoveryv3.DiscoveryRequest{VersionInfo: "v", Node: &corev3.Node{Id: "n"}, TypeUrl: xds.Route.URL(),
		ResourceNames: []string{"r"}, ResponseNonce: "3", ErrorDetail: &status.Status{Message: "why"}}))
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != "v" || m.Node == nil || m.Type != xds.Route || !slices.Equal(slices.Collect(m.Subscribe), []string{"r"}) || m.Nonce != "3" || !m.Failed || m.Error != "why" {
		t.Errorf("%+v", m)
	}
}

// FuzzParseDelta: the parser returns the result of protobuf for all bytes that protobuf can decode, and never panics.
func FuzzParseDelta(f *testing.F) {
	f.Add(marshal(f, sample))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := ParseDelta(raw)
		var p discoveryv3.DeltaDiscoveryRequest
		if proto.Unmarshal(raw, &p) != nil {
			return
		}
		if err != nil {
			t.Fatalf("protobuf reads it, the walker does not: %v", err)
		}
		if err := sameDelta(m, &p); err != nil && p.ErrorDetail == nil {
			t.Fatal(err)
		}
		New(Config{}, &manifest.Set{}).Request(m.Request, nil)
		_, _ = ParseSotW(raw)
	})
}

// FuzzState: histories that the fuzzer chooses, with a well-behaved proxy and with a hostile one, keep all promises.
func FuzzState(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03seed"), uint8(7))
	f.Add([]byte(strings.Repeat("\x05\x11\x27", 60)), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, mode uint8) {
		if len(data) > 400 {
			return
		}
		i, r := 0, rand.New(rand.NewPCG(1, 2))
		rnd := func(n int) int {
			if i == len(data) {
				return r.IntN(n)
			}
			i++
			return int(data[i-1]) % n
		}
		run(t, rnd, len(data), mode&1 != 0, mode&2 != 0, mode&4 != 0 && mode&3 != 3, mode&8 != 0)
		hostile(t, rnd, len(data))
	})
}

// hostile sends requests that Envoy never sends.
func hostile(t *testing.T, rnd func(int) int, steps int) {
	e := newEditor(rnd, false, false)
	s := New(Config{SotW: rnd(2) == 0, Credit: 600, Dynamic: []string{"navarch.io/a", "navarch.io/b"}}, e.edit())
	pool := []manifest.Stack{{}, one(t, "Ka", "1"), one(t, "Ka", "2"), one(t, "Kb", "1")}
	names := []string{"Ka", "Kb", "*", "", "nobody", "r-a"}
	some := func() []string { return names[rnd(len(names)):] }
	var nonces []string
	for range steps {
		switch rnd(4) {
		case 0:
			s.Target(e.edit())
			s.Offer(Dynamic(rnd(3)), pool[rnd(len(pool))])
		case 1, 2:
			r := Request{Type: xds.Type(rnd(9)), Subscribe: slices.Values(some()), Unsubscribe: slices.Values(some()), Failed: rnd(3) == 0, Error: `name: "Ka" in route r-a`}
			if len(nonces) > 0 && rnd(2) == 0 {
				r.Nonce = nonces[rnd(len(nonces))]
			}
			s.Request(r, nil)
		case 3:
			for n := 0; ; n++ {
				reply, ok := s.Next()
				if !ok {
					break
				}
				if n > 1000 {
					t.Fatal("it never stops sending")
				}
				nonces = append(nonces, reply.Nonce)
				for _, name := range reply.Removed {
					if slices.ContainsFunc(reply.Set, func(r *xds.Resource) bool { return r.Name == name }) {
						t.Fatalf("%v %s is in both lists", reply.Type, name)
					}
				}
			}
		}
		if s.Unacked() < 0 {
			t.Fatal("negative credit")
		}
	}
}

// firstRequest returns an encoded first request that claims to have names.
func firstRequest(t xds.Type, held [][2]string) []byte {
	raw := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), t.URL())
	for _, kv := range held {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), kv[0])
		entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), kv[1])
		raw = protowire.AppendBytes(protowire.AppendTag(raw, 5, protowire.BytesType), entry)
	}
	return raw
}

func resume(t *testing.T, set *manifest.Set, raw []byte) *State {
	t.Helper()
	m, err := ParseDelta(raw)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{}, set)
	s.Request(m.Request, nil)
	return s
}

// A repeated claim does not count for another name, and claims of missing names count for none.
func TestForgedClaims(t *testing.T) {
	a, b := thing(xds.Cluster, "static-a@1"), thing(xds.Cluster, "static-b@1")
	set := &manifest.Set{}
	set.Types[xds.Cluster][manifest.Scope] = manifest.Of(a, b)
	for name, held := range map[string][][2]string{
		"twice":   {{a.Name, a.Version}, {a.Name, a.Version}},
		"foreign": {{a.Name, a.Version}, {"nobody", "x"}},
	} {
		s := resume(t, set, firstRequest(xds.Cluster, held))
		if reply, ok := s.Next(); !ok || len(reply.Set) != 1 || reply.Set[0] != b {
			t.Errorf("%s: %+v", name, reply)
		}
	}
}

// A proxy that resumes with all existing resources needs no table of names: the allocations do not grow with the names.
func TestResumeBuildsNoMaps(t *testing.T) {
	allocs := func(n int) float64 {
		var all []*xds.Resource
		var held [][2]string
		for i := range n {
			r := thing(xds.Cluster, fmt.Sprintf("static%d@1", i))
			all, held = append(all, r), append(held, [2]string{r.Name, r.Version})
		}
		set := &manifest.Set{}
		set.Types[xds.Cluster][manifest.Scope] = manifest.Of(all...)
		raw := firstRequest(xds.Cluster, held)
		return testing.AllocsPerRun(20, func() {
			if _, ok := resume(t, set, raw).Next(); ok {
				t.Fatal("something was sent")
			}
		})
	}
	small, large := allocs(10), allocs(3000)
	if large > small+5 {
		t.Errorf("%v allocations with 10 clusters, %v with 3,000", small, large)
	}
	t.Logf("%v allocations", large)
}

// Most requests are ACKs: an ACK is read in place, and no list is allocated for it.
func TestAckMakesNothing(t *testing.T) {
	raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL(), ResponseNonce: "17"})
	if err != nil {
		t.Fatal(err)
	}
	pieces := make([][]byte, 1)
	if n := testing.AllocsPerRun(100, func() {
		pieces[0] = raw
		m, err := ParseDelta(pieces...)
		if err != nil || m.Nonce != "17" || Collect(m.Subscribe) != nil || Collect(m.Unsubscribe) != nil || m.Initial != nil {
			t.Fatalf("%+v, %v", m, err)
		}
	}); n > 1 { // the list of its pieces
		t.Errorf("%v allocations", n)
	}
}
