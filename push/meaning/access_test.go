package meaning

import (
	"context"
	"fmt"
	"slices"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// A rule covers another one only if every request of the other one is known to match.
func TestCoveredTerms(t *testing.T) {
	one := func(name string) term { return term{text: name} }
	a, b, c := one("a"), one("b"), one("c")
	every, none := term{op: anything}, term{op: never}
	and := func(parts ...term) term { return joined(both, parts) }
	or := func(parts ...term) term { return joined(either, parts) }
	for _, test := range []struct {
		name    string
		t, of   term
		covered bool
	}{
		{"any of anything", every, or(a, b), true}, {"nothing of a", none, a, false}, {"a of nothing", a, none, true},
		{"itself", a, a, true}, {"others", a, b, false},
		{"a or b of a", or(a, b), a, true}, {"a of a or b", a, or(a, b), false}, {"a of a and b", a, and(a, b), true},
		{"a and b of a", and(a, b), a, false}, {"the order", and(a, b), and(b, a), true}, {"a or b of b and c", or(a, b), and(b, c), true},
		{"not a of not (a or b)", negated(a), negated(or(a, b)), true}, {"not (a or b) of not a", negated(or(a, b)), negated(a), false},
		{"not a of b", negated(a), b, false}, {"double", negated(negated(every)), a, true},
		{"any in a list", or(a, every), b, true}, {"nothing in a list", and(a, none), b, false},
	} {
		if got := test.t.covers(test.of, newBudget(context.Background(), mostSteps)); got != test.covered {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// A risk names the objects of the change among those that made a resource, then the only object of the change, then all
// objects that made the resource.
func TestDecidingObjects(t *testing.T) {
	made := []string{"AuthorizationPolicy shop/a", "PeerAuthentication shop/default", "Service shop/api"}
	for _, c := range []struct{ edited, want []string }{
		{nil, made},
		{[]string{"PeerAuthentication shop/default", "Service other/x"}, made[1:2]},
		{[]string{"DestinationRule shop/gone"}, []string{"DestinationRule shop/gone"}},
		{[]string{"Service other/x", "Service other/y"}, made},
	} {
		a := &assessment{View: View{Edited: c.edited, Objects: func(xds.Type, string) []string { return made }}}
		a.add(ListenerReplaced, Medium, xds.Listener, "virtualInbound", "listener", nil, "it is replaced")
		if got := a.risks[0].Objects; !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.edited, got, c.want)
		}
	}
}

// A host that vanishes from a gateway has no cluster whose objects are known. The risk names the only object of the
// change, or else its only Gateway.
func TestObjectsOfAHostThatVanishes(t *testing.T) {
	old := &routev3.RouteConfiguration{Name: "http.8080", VirtualHosts: []*routev3.VirtualHost{{Name: "a.com:8080", Domains: []string{"a.com"},
		Routes: []*routev3.Route{{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}}}}}}}
	empty := new(Decoder).Set(&manifest.Set{})
	for _, c := range []struct{ edited, want []string }{
		{[]string{"VirtualService edge/v"}, []string{"VirtualService edge/v"}},
		{[]string{"Gateway edge/g", "VirtualService edge/v"}, []string{"Gateway edge/g"}},
		{[]string{"Gateway edge/g", "Gateway edge/h"}, nil},
	} {
		all := Risks(View{Before: empty, After: empty, Edited: c.edited, Objects: func(xds.Type, string) []string { return nil },
			Pairs: []Pair{{Type: xds.Route, Name: "http.8080", Old: old, New: &routev3.RouteConfiguration{Name: "http.8080"}}}})
		i := slices.IndexFunc(all, func(r Risk) bool { return r.Code == HostGone })
		if i < 0 || !slices.Equal(all[i].Objects, c.want) {
			t.Errorf("%v: %+v, want %v", c.edited, all, c.want)
		}
	}
}

// rulesOfSize returns many rules for a caller each, all different.
func rulesOfSize(n int, prefix string) map[string]accessRule {
	all := map[string]accessRule{}
	for i := range n {
		name := fmt.Sprintf("%s%d", prefix, i)
		all[name] = accessRule{callers: term{op: leaf, text: name}, requests: term{op: anything}, sum: name}
	}
	return all
}

// Comparisons of many rules end with the context, and with their budget. Rules that were not compared count as rules
// that differ; equal rules need no comparison.
func TestComparisonsOfRulesAreBounded(t *testing.T) {
	const n = 3000
	a, b := rulesOfSize(n, "a"), rulesOfSize(n, "b")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, m := range map[string]*memo{"of an ended context": newMemo(ended), "beyond the budget": {budget: newBudget(t.Context(), 1000)}} {
		before := m.budget.left
		if got := m.beyond(a, b); len(got) != n {
			t.Errorf("%s: %d rules differ, want %d", name, len(got), n)
		}
		if m.budget.left != 0 || before-m.budget.left > mostSteps {
			t.Errorf("%s: %d steps are left of %d", name, m.budget.left, before)
		}
		if got := m.beyond(a, a); got != nil {
			t.Errorf("%s: equal rules differ: %d", name, len(got))
		}
	}
	if got := newMemo(t.Context()).beyond(rulesOfSize(10, "a"), map[string]accessRule{
		"wide": {callers: term{op: anything}, requests: term{op: anything}}}); got != nil {
		t.Errorf("%v differ from a rule for all", got)
	}
}
