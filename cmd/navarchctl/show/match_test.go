package show

import (
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Conditions of a request match, positive and negative ones.
func TestMatch(t *testing.T) {
	m := &routev3.RouteMatch{
		PathSpecifier:   &routev3.RouteMatch_Prefix{Prefix: "/a"},
		Headers:         []*routev3.HeaderMatcher{{Name: "x-team"}, {Name: "x-not", InvertMatch: true}},
		DynamicMetadata: []*matcherv3.MetadataMatcher{{Filter: "found"}, {Filter: "excluded", Invert: true}},
		QueryParameters: []*routev3.QueryParameterMatcher{{Name: "q"}},
	}
	if got, want := match(m), "/a*, header x-team, not header x-not, metadata found, not metadata excluded, query q"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
