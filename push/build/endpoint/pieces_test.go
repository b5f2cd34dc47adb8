package endpoint

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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
		got := sorted(&pacer{pause: func() { longest, since = max(longest, since), 0 }}, all, func(a, b target) int {
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

// attackOnLocalities is an assignment of n endpoints in as many localities, which distribute shares among 100 areas.
func attackOnLocalities(n int) Spec {
	var members intern.Table[model.Member]
	to := map[string]uint32{"r/*": 1}
	for i := range 99 {
		to[fmt.Sprintf("q/y%d/t", i)] = 1
	}
	distribute := []*networkingv1.LocalityLoadBalancerSetting_Distribute{{From: "*", To: to}}
	return Spec{Cluster: "c", Members: members.List(many(n)...), Balance: Balance{Localities: traffic.Localities{
		Setting: &networkingv1.LocalityLoadBalancerSetting{Distribute: distribute}}}}
}

// The localities of a list are looked up, not compared with each element of distribute, and between two pauses at most
// perPiece localities have been looked up.
func TestLocalitiesArePaced(t *testing.T) {
	const n = 20 * perPiece
	spec := attackOnLocalities(n)
	pauses := 0
	pace := &pacer{pause: func() { pauses++ }}
	groups := make([]*group, 0, n)
	for _, m := range many(n) {
		groups = append(groups, &group{locality: m.Endpoint.Locality, members: []target{{Member: m, weight: 1}}})
	}
	if spec.distribute(groups, pace); pauses != 2*n/perPiece {
		t.Errorf("%d pauses for %d localities, want %d", pauses, n, 2*n/perPiece)
	}
	if pauses = 0; len(compact(groups, pace)) != n || pauses < 2*n/perPiece {
		t.Errorf("%d pauses for sorting %d localities, want at least %d", pauses, n, 2*n/perPiece)
	}
}

// Each locality has the share of the first name that covers it, as with a search through the sorted names.
func TestSharesAreFirstCover(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	part := func() string { return []string{"a", "b", "", "*", "a/b"}[r.IntN(5)] }
	text := func() string { return strings.Join([]string{part(), part(), part()}[:1+r.IntN(3)], "/") }
	covers := func(pattern, locality string) bool {
		parts := model.LocalityParts(locality)
		for i, p := range strings.SplitN(pattern, "/", 3) {
			if p == "*" {
				return true
			}
			if p != parts[i] {
				return false
			}
		}
		return true
	}
	for range 20_000 {
		to := map[string]uint32{text(): 1, text(): 2, text(): 3, text(): 4}
		locality, want := text(), ""
		for _, name := range slices.Sorted(maps.Keys(to)) {
			if covers(name, locality) {
				want = name
				break
			}
		}
		got := sharesOf(to).of(locality)
		if (got != nil) != slices.ContainsFunc(slices.Collect(maps.Keys(to)), func(p string) bool { return covers(p, locality) }) ||
			got != nil && (got.name != want || got.percent != to[want] || !areaOf(want).covers(locality)) {
			t.Fatalf("%q of %v: %v, want %q", locality, to, got, want)
		}
	}
}

// BenchmarkAttackLocalities reports the longest piece of an assignment of 40,000 localities.
func BenchmarkAttackLocalities(b *testing.B) { longestPiece(b, attackOnLocalities(40_000)) }

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

// longestPiece builds an assignment, and reports its longest piece.
func longestPiece(b *testing.B, spec Spec) {
	longest := time.Duration(0)
	for b.Loop() {
		last := time.Now()
		pause := func() { longest, last = max(longest, time.Since(last)), time.Now() }
		if _, err := spec.BuildInPieces(pause); err != nil {
			b.Fatal(err)
		}
		pause()
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}
