package normal

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/problem"
)

// A match has no effect if an earlier rule covers the match. A rule has no effect if all its matches are covered. An
// earlier http match covers equal and narrower matches. An earlier tls or tcp match covers only equal matches. Istio
// has the same checks (analyzeUnreachableHTTPRules in pkg/config/validation).

// These constants bound the quadratic cost of the comparisons. Both apply separately to the http, tls and tcp matches
// of a VirtualService. maxCovering is the largest number of earlier matches with which a later match is compared. An
// entry for everything may exceed this number by one. maxCompared bounds all comparisons, of which each counts as the
// size of the earlier match (covering.size). Later matches are not compared.
const (
	maxCovering = 300
	maxCompared = 500_000
)

// covering is a match of an earlier rule.
type covering[M any] struct {
	rule  int // index of the rule
	match M   // zero: an entry for everything, because the rule matches everything
	size  int // the cost of a comparison, as a multiple of that with a small match
}

// earlier lists the matches of earlier rules.
type earlier[M any] struct {
	all      []covering[M]
	compared int // cost of the comparisons so far
}

// matching is the type constraint of matches: pointers to protobuf messages.
type matching interface {
	comparable
	proto.Message
}

// checkUnreachable warns of http, tls and tcp rules, and of single matches in them, that earlier rules cover.
func checkUnreachable(r *report, vs *networkingv1.VirtualService) {
	var http earlier[*networkingv1.HTTPMatchRequest]
	for i, h := range vs.Http {
		unused(r, fmt.Sprintf("spec.http[%d]", i), h.GetMatch(), &http, httpCovers)
		if h.GetDelegate() == nil { // the matches of a delegate restrict the rule further
			http.all = cover(http.all, i, h.GetMatch(), &networkingv1.HTTPMatchRequest{}, httpCovers)
		}
	}
	var tls earlier[*networkingv1.TLSMatchAttributes]
	for i, t := range vs.Tls {
		unused(r, fmt.Sprintf("spec.tls[%d]", i), t.GetMatch(), &tls, same)
		tls.all = cover(tls.all, i, t.GetMatch(), &networkingv1.TLSMatchAttributes{}, same)
	}
	var tcp earlier[*networkingv1.L4MatchAttributes]
	for i, t := range vs.Tcp {
		unused(r, fmt.Sprintf("spec.tcp[%d]", i), t.GetMatch(), &tcp, same)
		tcp.all = cover(tcp.all, i, t.GetMatch(), &networkingv1.L4MatchAttributes{}, same)
	}
}

// same reports whether two matches are equal.
func same[M matching](earlier, later M) bool { return proto.Equal(earlier, later) }

// cover appends the matches of a rule to the earlier matches, up to maxCovering. The argument empty is a match without
// conditions. If the rule has no matches, or if one of its matches covers empty, cover appends only an entry for
// everything. After an entry for everything, cover appends nothing.
func cover[M matching](earlier []covering[M], rule int, matches []M, empty M, covers func(earlier, later M) bool) []covering[M] {
	var everything M
	if n := len(earlier); n > 0 && earlier[n-1].match == everything {
		return earlier
	}
	if len(matches) == 0 || slices.ContainsFunc(matches, func(m M) bool { return covers(m, empty) }) {
		return append(earlier, covering[M]{rule: rule})
	}
	for _, m := range matches {
		if len(earlier) < maxCovering {
			earlier = append(earlier, covering[M]{rule, m, 1 + proto.Size(m)/64})
		}
	}
	return earlier
}

// unused warns of each match of a rule that an earlier match covers. If all matches of the rule are covered, unused
// warns of the rule too. It does not warn of a match that only an entry for everything covers, because that entry
// covers the whole rule.
func unused[M matching](r *report, at string, matches []M, known *earlier[M], covers func(earlier, later M) bool) {
	var everything M
	earlier := known.all
	by := func(m M) int {
		return slices.IndexFunc(earlier, func(e covering[M]) bool {
			if e.match == everything || m == everything {
				return e.match == everything
			}
			known.compared += e.size
			return known.compared <= maxCompared && covers(e.match, m)
		})
	}
	if len(matches) == 0 {
		matches = []M{everything}
	}
	covered, first := 0, 0
	for j, m := range matches {
		r.step()
		i := by(m)
		if i < 0 {
			continue
		}
		if covered++; covered == 1 {
			first = earlier[i].rule
		}
		if earlier[i].match != everything {
			r.analysef(problem.VirtualServiceIneffectiveMatch, problem.NoEffect, fmt.Sprintf("%s.match[%d]", at, j),
				"never used: the earlier rule %d covers this match", earlier[i].rule)
		}
	}
	switch {
	case covered < len(matches):
	case earlier[len(earlier)-1].match == everything && earlier[len(earlier)-1].rule == first:
		r.analysef(problem.VirtualServiceUnreachableRule, problem.NoEffect, at, "never used: rule %d before it matches everything", first)
	default:
		r.analysef(problem.VirtualServiceUnreachableRule, problem.NoEffect, at,
			"never used: earlier rules, such as rule %d, cover all its matches", first)
	}
}

// httpCovers reports whether the earlier match a matches every request that the later match b matches. It also returns
// false if it cannot tell, for example for two different regular expressions.
func httpCovers(a, b *networkingv1.HTTPMatchRequest) bool {
	switch {
	case a.GetIgnoreUriCase() != b.GetIgnoreUriCase() && a.GetUri() != nil && !every(a.GetUri()):
		return false
	case a.GetPort() != 0 && a.GetPort() != b.GetPort(), a.GetSourceNamespace() != "" && a.GetSourceNamespace() != b.GetSourceNamespace():
		return false
	case len(a.GetGateways()) > 0 && !slices.Equal(a.GetGateways(), b.GetGateways()):
		return false
	}
	for k, v := range a.GetSourceLabels() {
		if have, has := b.GetSourceLabels()[k]; !has || have != v {
			return false
		}
	}
	return (every(a.GetUri()) || textCovers(a.GetUri(), b.GetUri())) && textCovers(a.GetScheme(), b.GetScheme()) &&
		textCovers(a.GetMethod(), b.GetMethod()) &&
		textCovers(a.GetAuthority(), b.GetAuthority()) && textsCover(a.GetHeaders(), b.GetHeaders()) &&
		textsCover(a.GetQueryParams(), b.GetQueryParams()) &&
		withoutCovers(a.GetWithoutHeaders(), b.GetWithoutHeaders())
}

// textsCover reports whether each condition in the first map covers the condition on the same header or parameter in
// the second map. If the second map lacks a name of the first map, the result is false.
func textsCover(a, b map[string]*networkingv1.StringMatch) bool {
	for name, m := range a {
		if other, has := b[name]; !has || !sameText(m, other) && (unsaid(m) || unsaid(other) || !textCovers(m, other)) {
			return false
		}
	}
	return true
}

// withoutCovers reports whether the second map contains all entries of the first map. Both maps are the withoutHeaders
// of http matches.
func withoutCovers(a, b map[string]*networkingv1.StringMatch) bool {
	for name, m := range a {
		if other, has := b[name]; !has || !sameText(m, other) {
			return false
		}
	}
	return true
}

// textCovers reports whether the first match of a text covers the second match. A nil match matches any text.
func textCovers(a, b *networkingv1.StringMatch) bool {
	switch {
	case unsaid(a):
		return true
	case unsaid(b):
		return false
	case sameText(a, b):
		return true
	}
	prefix, is := a.GetMatchType().(*networkingv1.StringMatch_Prefix)
	return is && (b.GetExact() != "" && strings.HasPrefix(b.GetExact(), prefix.Prefix) || b.GetPrefix() != "" &&
		strings.HasPrefix(b.GetPrefix(), prefix.Prefix))
}

// sameText reports whether two matches are equal. It is ten times faster than proto.Equal, because a VirtualService of
// 300 routes needs 45,000 comparisons.
func sameText(a, b *networkingv1.StringMatch) bool {
	switch m := a.GetMatchType().(type) {
	case *networkingv1.StringMatch_Exact:
		other, is := b.GetMatchType().(*networkingv1.StringMatch_Exact)
		return is && m.Exact == other.Exact
	case *networkingv1.StringMatch_Prefix:
		other, is := b.GetMatchType().(*networkingv1.StringMatch_Prefix)
		return is && m.Prefix == other.Prefix
	case *networkingv1.StringMatch_Regex:
		other, is := b.GetMatchType().(*networkingv1.StringMatch_Regex)
		return is && m.Regex == other.Regex
	}
	return unsaid(a) && unsaid(b)
}

// unsaid reports whether a match has no condition.
func unsaid(m *networkingv1.StringMatch) bool { return m.GetMatchType() == nil }

// every reports whether m is a prefix of all paths: "/" or empty. It returns false for a nil match and for all other
// kinds of match, such as regular expressions.
func every(m *networkingv1.StringMatch) bool {
	p, is := m.GetMatchType().(*networkingv1.StringMatch_Prefix)
	return is && (p.Prefix == "/" || p.Prefix == "")
}
