package delta

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// cut returns a copy of a message in pieces, so that a test detects any use of freed bytes.
func cut(raw []byte, at ...int) (pieces [][]byte) {
	from := 0
	for _, to := range append(at, len(raw)) {
		pieces = append(pieces, bytes.Clone(raw[from:to]))
		from = to
	}
	return pieces
}

// digests checks that the hashes that the parser computed are those of the request's lists.
func digests(m Message) error {
	again := Request{Subscribe: m.Subscribe, Initial: m.Initial}
	again.digest()
	if m.asked != again.asked || m.all != again.all || m.initialSum != again.initialSum {
		return fmt.Errorf("sums %v %v %v, want %v %v %v", m.asked, m.all, m.initialSum, again.asked, again.all, again.initialSum)
	}
	return nil
}

// A request is parsed with the same result however it is cut, and invalid bytes are refused however they are cut.
func TestPieces(t *testing.T) {
	long := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: strings.Repeat("n", 300)}, TypeUrl: xds.Endpoint.URL(), ResponseNonce: "7",
		ResourceNamesSubscribe: []string{"*", strings.Repeat("a", 127), strings.Repeat("b", 128), ""}, ResourceNamesUnsubscribe: []string{"c"},
		InitialResourceVersions: map[string]string{strings.Repeat("d", 200): "1", "e": ""}}
	for _, request := range []*discoveryv3.DeltaDiscoveryRequest{sample, long} {
		// Field 99 is unknown, like one of a later version.
		raw := protowire.AppendVarint(protowire.AppendTag(marshal(t, request), 99, protowire.VarintType), 1<<60)
		check := func(at ...int) {
			t.Helper()
			m, err := ParseDelta(cut(raw, at...)...)
			if err == nil {
				err = sameDelta(m, request)
			}
			if err == nil {
				err = digests(m)
			}
			if err != nil {
				t.Fatalf("cut at %v: %v", at, err)
			}
			if _, err := ParseDelta(cut(raw[:len(raw)-1], at...)...); err == nil {
				t.Fatalf("cut at %v, the last byte missing: no error", at)
			}
		}
		for i := range len(raw) - 1 {
			check(i)
			check(i, i)
			check(i, i+(len(raw)-1-i)/2)
		}
		var all []int
		for i := range len(raw) - 1 {
			all = append(all, i)
		}
		check(all...)
	}
}

// Groups, unbounded lengths and unexpected bytes are refused in pieces as in one, and are read only once.
func TestPiecesOfGarbage(t *testing.T) {
	group := bytes.Repeat(protowire.AppendTag(nil, 9, protowire.StartGroupType), 40)
	endless := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.BytesType), 1<<62)
	for name, raw := range map[string][]byte{"group": group, "endless": append(endless, make([]byte, 100)...), "tag": bytes.Repeat([]byte{0xff}, 60)} {
		for i := range len(raw) {
			if _, err := ParseDelta(cut(raw, i)...); err == nil {
				t.Errorf("%s, cut at %d: no error", name, i)
			}
		}
	}
	closed := append(slices.Clone(group[:1]), protowire.AppendTag(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3), 9, protowire.EndGroupType)...)
	for i := range len(closed) {
		if _, err := ParseDelta(cut(append(closed, marshal(t, sample)...), i, i+4)...); err != nil {
			t.Errorf("a group of a later version, cut at %d: %v", i, err)
		}
	}
}

// FuzzPieces: a message is parsed with the same result however it is cut.
func FuzzPieces(f *testing.F) {
	f.Add(marshal(f, sample), uint64(1))
	f.Add([]byte{}, uint64(1))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var at []int
		for i := 0; i < len(raw); i += 1 + r.IntN(40) {
			at = append(at, i)
		}
		want, wrong := ParseDelta(raw)
		got, err := ParseDelta(cut(raw, at...)...)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("in pieces: %v, in one: %v", err, wrong)
		}
		if err != nil {
			return
		}
		if got.asked != want.asked || got.all != want.all || got.initialSum != want.initialSum || !bytes.Equal(got.Node, want.Node) || got.TypeURL != want.TypeURL || got.Nonce != want.Nonce ||
			!slices.Equal(inOrder(got.Unsubscribe), inOrder(want.Unsubscribe)) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if err := digests(got); err != nil {
			t.Fatal(err)
		}
	})
}

// resuming returns the request of a proxy that has all resources of a set, in pieces as gRPC reads them.
func resuming(set *manifest.Set, names []string) [][]byte {
	var held [][2]string
	for r := range set.Types[xds.Endpoint].All() {
		held = append(held, [2]string{r.Name, r.Version})
	}
	raw := append(firstRequest(xds.Endpoint, held), subscription(xds.Endpoint, names...)...)
	var at []int
	for i := 16 << 10; i < len(raw); i += 16 << 10 {
		at = append(at, i)
	}
	return cut(raw, at...)
}

// A resumed subscription is not copied: neither the number nor the size of allocations grows with the names, except for
// the few names that lie across two pieces.
func TestResumeAllocates(t *testing.T) {
	const runs = 20
	cost := func(n int) (objects, bytes uint64, pieces [][]byte) {
		set, names := great(n)
		pieces, shared := resuming(set, names), &Names{}
		var other *State // another proxy's stream, which keeps the list
		defer func() { runtime.KeepAlive(other) }()
		resume := func() {
			m, err := ParseDelta(slices.Clone(pieces)...)
			if err != nil {
				t.Fatal(err)
			}
			s := New(Config{Names: shared}, set)
			s.Request(m.Request, nil)
			if ty := &s.types[xds.Endpoint]; !ty.resumed || len(ty.overrides) > 0 {
				t.Fatalf("resumed %v, %d overrides", ty.resumed, len(ty.overrides))
			}
			if other == nil {
				other = s
			}
		}
		resume() // the names are interned, and the manifest is hashed
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			resume()
		}
		runtime.ReadMemStats(&after)
		return (after.Mallocs - before.Mallocs) / runs, (after.TotalAlloc - before.TotalAlloc) / runs, pieces
	}
	objects, size, _ := cost(50)
	moreObjects, moreSize, pieces := cost(2000)
	t.Logf("50 names: %d objects, %d bytes; 2,000 names in %d pieces: %d objects, %d bytes", objects, size, len(pieces), moreObjects, moreSize)
	if n := uint64(len(pieces)); moreObjects > objects+2*n || moreSize > size+500*n {
		t.Errorf("50 names: %d objects, %d bytes; 2,000 names in %d pieces: %d objects, %d bytes", objects, size, len(pieces), moreObjects, moreSize)
	}
}
