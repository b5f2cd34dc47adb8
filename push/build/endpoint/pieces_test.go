package endpoint

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// An assignment of many endpoints is built in pieces: each handles at most perPiece of them. The bytes are those of the
// assignment that is built at once.
func TestLargeAssignmentsAreBuiltInPieces(t *testing.T) {
	var members intern.Table[model.Member]
	const n = 10 * perPiece
	s := Spec{Cluster: "outbound|80||h", Members: members.List(randomMembers(rand.New(rand.NewPCG(1, 2)), n)...)}
	for name, spec := range map[string]interface {
		Build() (*xds.Resource, error)
		BuildInPieces(pause func()) (*xds.Resource, error)
	}{"Envoy": s, "gRPC": Proxyless{s}} {
		pauses := 0
		got, err := spec.BuildInPieces(func() { pauses++ })
		if err != nil {
			t.Fatal(err)
		}
		if want, err := spec.Build(); err != nil || got.Version != want.Version {
			t.Errorf("%s: other bytes in pieces (%v)", name, err)
		}
		// Members are read, sorted and compared each; the valid ones are grouped and encoded too.
		if least := 3 * n / perPiece; pauses < least {
			t.Errorf("%s: %d pauses for %d endpoints, want at least %d", name, pauses, n, least)
		}
	}
}

// Targets are sorted in pieces as at once: stable.
func TestSortedInPieces(t *testing.T) {
	for _, n := range []int{0, 1, perPiece, perPiece + 1, 5*perPiece + 7} {
		r := rand.New(rand.NewPCG(uint64(n), 3))
		var all []target
		for i := range n {
			all = append(all, target{weight: uint64(i), Member: model.Member{Port: uint32(r.IntN(n/3 + 1))}})
		}
		byPort := func(a, b target) int { return cmp.Compare(a.Port, b.Port) }
		want := slices.Clone(all)
		slices.SortStableFunc(want, byPort)
		longest, since := 0, 0
		got := (&pacer{pause: func() { longest, since = max(longest, since), 0 }}).sorted(all, func(a, b target) int {
			since++
			return byPort(a, b)
		})
		if !slices.Equal(got, want) {
			t.Errorf("%d targets are in another order", n)
		}
		if most := max(n, 20*perPiece); max(longest, since) > most {
			t.Errorf("%d targets: %d comparisons without a pause, want at most %d", n, max(longest, since), most)
		}
	}
}

// Every endpoint may state a locality of its own. The work is in proportion to the endpoints: with a search of each
// locality among all others this test would take minutes.
func TestEachEndpointItsLocality(t *testing.T) {
	var members intern.Table[model.Member]
	const n = 200_000
	all := make([]model.Member, n)
	for i := range all {
		e := &model.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Locality: fmt.Sprintf("r/z%06d", i)}
		all[i] = model.Member{Endpoint: e, Port: 80}
	}
	pace := &pacer{pause: func() {}}
	groups := Balance{}.group(Horizon{}.targets(all, func(model.Member) bool { return false }, pace), pace)
	if len(groups) != n || groups[7].locality != "r/z000007" {
		t.Errorf("%d groups", len(groups))
	}
	// Nor is each of the members looked for among those without mTLS.
	s := Spec{Cluster: "c", Members: members.List(all...), Plain: members.List(all...)}
	if _, err := s.Build(); err != nil {
		t.Error(err)
	}
}
