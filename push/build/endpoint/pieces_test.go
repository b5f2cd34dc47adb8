package endpoint

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
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

// many returns endpoints with a locality of their own each.
func many(n int) []model.Member {
	all := make([]model.Member, n)
	for i := range all {
		e := &model.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Locality: fmt.Sprintf("r/z%06d/s", i)}
		all[i] = model.Member{Endpoint: e, Port: 80}
	}
	return all
}

// attackOnLabels is an assignment of n endpoints whose failoverPriority names n labels that neither the proxy nor an
// endpoint has.
func attackOnLabels(n int) Spec {
	var members intern.Table[model.Member]
	var strs intern.Table[string]
	var keys, own []string
	for i := range n {
		keys, own = append(keys, fmt.Sprint("l", i)), append(own, fmt.Sprintf("l%d=", i))
	}
	return Spec{Cluster: "c", Members: members.List(many(n)...), Balance: Balance{Labels: strs.List(own...),
		Localities: traffic.Localities{Setting: &networkingv1.LocalityLoadBalancerSetting{FailoverPriority: keys}}}}
}

// Each label that is compared with an endpoint counts as a step. The labels of the proxy are not searched for each
// endpoint: this test would take minutes.
func TestLabelsArePaced(t *testing.T) {
	const n = perPiece
	pauses := 0
	if _, err := attackOnLabels(n).BuildInPieces(func() { pauses++ }); err != nil {
		t.Fatal(err)
	}
	if least := n * n / perPiece; pauses < least {
		t.Errorf("%d pauses for %d endpoints with %d labels, want at least %d", pauses, n, n, least)
	}
}

// BenchmarkAttackLabels reports the longest piece of an assignment with 300 labels for 2,000 endpoints.
func BenchmarkAttackLabels(b *testing.B) {
	spec := attackOnLabels(2000)
	spec.Balance.Localities.Setting.FailoverPriority = spec.Balance.Localities.Setting.FailoverPriority[:300]
	longestPiece(b, spec)
}

func longestPiece(b *testing.B, spec Spec) {
	longest := time.Duration(0)
	for b.Loop() {
		last := time.Now()
		if _, err := spec.BuildInPieces(func() { longest, last = max(longest, time.Since(last)), time.Now() }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}
