package meaning

import (
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/walk"
)

// randomMatch returns a match of few paths and headers, so that many matches overlap.
func randomMatch(r *rand.Rand) *routev3.RouteMatch {
	path := []string{"/", "/a", "/a/", "/a/b", "/A", "/ab"}[r.IntN(6)]
	m := &routev3.RouteMatch{}
	switch r.IntN(5) {
	case 0:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: path}
	case 1:
		m.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/a"}
	case 2:
		regex := []string{"/a.*", "/(a|b)+", "/[^/]+/b"}[r.IntN(3)]
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}}
	default:
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: path}
	}
	if r.IntN(4) == 0 {
		m.CaseSensitive = wrapperspb.Bool(false)
	}
	for range r.IntN(3) {
		h := &routev3.HeaderMatcher{Name: []string{"x", "y"}[r.IntN(2)], InvertMatch: r.IntN(4) == 0}
		value := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: []string{"1", "2"}[r.IntN(2)]}}
		if r.IntN(3) == 0 {
			value.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: "1"}
		}
		h.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: value}
		h.TreatMissingHeaderAsEmpty = h.InvertMatch
		m.Headers = append(m.Headers, h)
	}
	return m
}

// randomRequest returns a request that some matches hold for.
func randomRequest(r *rand.Rand) map[string]string {
	headers := map[string]string{":path": []string{"/", "/a", "/a/", "/a/b", "/A", "/ab", "/a/x", "/b/b", "/A/B", "/a/b/c"}[r.IntN(10)]}
	for _, name := range []string{"x", "y"} {
		if value := []string{"", "1", "2", "12"}[r.IntN(4)]; value != "" {
			headers[name] = value
		}
	}
	return headers
}

// The answers of implies and disjoint hold for every request, and samples are requests of their match.
func TestMatchesCompare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	implied, apart, sampled := 0, 0, 0
	for range 20_000 {
		a, b := randomMatch(r), randomMatch(r)
		isImplied, isApart := implies(a, b), disjoint(a, b)
		for range 10 {
			request := randomRequest(r)
			inA, inB := walk.Matches(a, request), walk.Matches(b, request)
			if isImplied && inA && !inB {
				t.Fatalf("%v is one of %s and not of %s", request, matchText(a), matchText(b))
			}
			if isApart && inA && inB {
				t.Fatalf("%v is one of %s and of %s", request, matchText(a), matchText(b))
			}
		}
		implied += map[bool]int{true: 1}[isImplied]
		apart += map[bool]int{true: 1}[isApart]
		for _, s := range samples(a, "h") {
			if sampled++; !walk.Matches(a, s) {
				t.Fatalf("%v is no sample of %s", s, matchText(a))
			}
		}
	}
	if implied < 500 || apart < 500 || sampled < 10_000 {
		t.Errorf("%d implied, %d apart, %d samples are few", implied, apart, sampled)
	}
}

// Expressions that users write have examples.
func TestExamples(t *testing.T) {
	for _, expression := range []string{"/v[0-9]+/items", "/a|/b", "/(?:x|y)?z*", `/\d{3}`, "/[^/]+/x", ".*"} {
		m := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: expression}}}
		if len(samples(m, "h")) == 0 {
			t.Errorf("no example of %s: %q", expression, example(expression))
		}
	}
}

// Expressions of tenants cost little time and memory.
func FuzzExample(f *testing.F) {
	f.Add("((a{100}){10}b*)+")
	f.Add("(?i)[\\x00-\\x{10FFFF}]|")
	f.Fuzz(func(t *testing.T, expression string) {
		if n := len(example(expression)); n > maxExample+len(expression)+4 {
			t.Errorf("%d bytes", n)
		}
	})
}

// rulesNamed returns rules with the paths of their names.
func rulesNamed(names ...string) (all []rule) {
	for _, n := range names {
		all = append(all, ruleOf(&routev3.Route{Name: n, Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + n}}}))
	}
	return all
}

// A rule that moves is said to have moved, past the rules that the same request may match and past no others.
func TestMoves(t *testing.T) {
	for _, c := range []struct {
		old, new []string
		want     []string
	}{
		{[]string{"a", "ab", "abc"}, []string{"abc", "a", "ab"}, []string{`rule "abc" now before "a"`}},
		{[]string{"a", "ab", "abc"}, []string{"ab", "abc", "a"}, []string{`rule "a" now after "ab"`}},
		{[]string{"a", "b", "c"}, []string{"c", "b", "a"}, nil},
		{[]string{"a", "b", "ab"}, []string{"b", "ab", "a"}, []string{`rule "a" now after "ab"`}},
		{[]string{"a", "ab"}, []string{"x", "a", "y", "ab"}, nil},
		{[]string{"x", "a", "ab"}, []string{"a", "ab"}, nil},
	} {
		a, b := rulesNamed(c.old...), rulesNamed(c.new...)
		if got := moves(b, pairRules(a, b)); len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%v -> %v: %q, want %q", c.old, c.new, got, c.want)
		}
	}
	many := make([]string, 3000)
	for i := range many {
		many[i] = string([]rune{rune('a' + i%26), rune('a' + i/26%26), rune('a' + i/676)})
	}
	a := rulesNamed(many...)
	began := time.Now()
	b := append(a[1:len(a):len(a)], a[0])
	if got := moves(b, pairRules(a, b)); len(got) != 1 || time.Since(began) > 10*time.Second {
		t.Errorf("%d moves after %v", len(got), time.Since(began))
	}
}
