package vhost

import (
	"errors"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/build/authz"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// errEmptyMatch is the error of a string match without exact, prefix or regex.
var errEmptyMatch = errors.New("the match has no exact, prefix or regex")

// matchAll returns a match for every request.
func matchAll() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}

// encodeMatch encodes a match of a rule; nil means every request. The error names the field with an invalid match.
func encodeMatch(m *networkingv1.HTTPMatchRequest) (*routev3.RouteMatch, error) {
	out := matchAll()
	if m == nil {
		return out, nil
	}
	if err := setPath(out, m.GetUri()); err != nil {
		return nil, problem.Within("uri", err)
	}
	out.CaseSensitive = wrapperspb.Bool(!m.GetIgnoreUriCase())
	if err := setHeaders(out, m); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetQueryParams())) {
		q := &routev3.QueryParameterMatcher{Name: name}
		if in := m.QueryParams[name]; matchesPresence(in) {
			q.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
		} else {
			s, err := stringMatch(in)
			if err != nil {
				return nil, problem.Within("queryParams["+name+"]", err)
			}
			q.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: s}
		}
		out.QueryParameters = append(out.QueryParameters, q)
	}
	return out, nil
}

// setPath sets the match on the path. As in Istio, the prefix "/a" also matches the path "/ab".
func setPath(out *routev3.RouteMatch, uri *networkingv1.StringMatch) error {
	switch u := uri.GetMatchType().(type) {
	case *networkingv1.StringMatch_Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: u.Exact}
	case *networkingv1.StringMatch_Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: u.Prefix}
	case *networkingv1.StringMatch_Regex:
		r, err := regex(u.Regex)
		if err != nil {
			return err
		}
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: r}
	}
	return nil
}

// setHeaders sets the matches on headers, sorted by name, then those on method, authority and scheme. As in Istio, the
// name "@request.auth.claims..." stands for a claim of the request's token. A match on a claim reads the dynamic
// metadata, in which the filter jwt_authn stores the claims. A sidecar has this filter for outbound requests only if an
// EnvoyFilter adds it.
func setHeaders(out *routev3.RouteMatch, m *networkingv1.HTTPMatchRequest) error {
	add := func(name string, in *networkingv1.StringMatch, without bool) error {
		if path, _ := model.RoutedClaim(name); path != nil {
			value, err := claimMatch(in)
			if err != nil {
				return problem.Within("headers["+name+"]", err)
			}
			claim := authz.Claim(path, value)
			claim.Invert = without
			out.DynamicMetadata = append(out.DynamicMetadata, claim)
			return nil
		}
		h, err := headerMatch(name, in, without)
		if err != nil {
			return problem.Within("headers["+name+"]", err)
		}
		out.Headers = append(out.Headers, h)
		return nil
	}
	names := slices.Concat(slices.Collect(maps.Keys(m.GetHeaders())), slices.Collect(maps.Keys(m.GetWithoutHeaders())))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if in, ok := m.GetHeaders()[name]; ok {
			if err := add(name, in, false); err != nil {
				return err
			}
		}
		if in, ok := m.GetWithoutHeaders()[name]; ok {
			if err := add(name, in, true); err != nil {
				return err
			}
		}
	}
	for _, pseudo := range []struct {
		name string
		in   *networkingv1.StringMatch
	}{{":method", m.GetMethod()}, {":authority", m.GetAuthority()}, {":scheme", m.GetScheme()}} {
		if pseudo.in == nil {
			continue
		}
		if err := add(pseudo.name, pseudo.in, false); err != nil {
			return err
		}
	}
	return nil
}

// claimMatch encodes a match on the value of a claim.
func claimMatch(in *networkingv1.StringMatch) (*matcherv3.ValueMatcher, error) {
	if matchesPresence(in) {
		return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}, nil
	}
	s, err := stringMatch(in)
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: s}}, err
}

// headerMatch encodes a match on a header. If the parameter without is true, the match is inverted, and holds if the
// header is missing.
func headerMatch(name string, in *networkingv1.StringMatch, without bool) (*routev3.HeaderMatcher, error) {
	out := &routev3.HeaderMatcher{Name: name, InvertMatch: without}
	if matchesPresence(in) {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		return out, nil
	}
	s, err := stringMatch(in)
	if err != nil {
		return nil, err
	}
	out.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: s}
	out.TreatMissingHeaderAsEmpty = without
	return out, nil
}

// matchesPresence reports whether a match tests only that a value is present. The result is true for an empty match,
// for an empty prefix, and for the regex "*". The regex "*" is Istio's notation for presence. It is not valid RE2.
func matchesPresence(in *networkingv1.StringMatch) bool {
	switch m := in.GetMatchType().(type) {
	case nil:
		return true
	case *networkingv1.StringMatch_Regex:
		return m.Regex == "*"
	case *networkingv1.StringMatch_Prefix:
		return m.Prefix == ""
	}
	return false
}

// stringMatch encodes a match on a string. It fails for an empty match, and for a regular expression that Envoy
// refuses.
func stringMatch(in *networkingv1.StringMatch) (*matcherv3.StringMatcher, error) {
	switch m := in.GetMatchType().(type) {
	case *networkingv1.StringMatch_Exact:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: m.Exact}}, nil
	case *networkingv1.StringMatch_Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: m.Prefix}}, nil
	case *networkingv1.StringMatch_Regex:
		r, err := regex(m.Regex)
		if err != nil {
			return nil, err
		}
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: r}}, nil
	}
	return nil, errEmptyMatch
}

// regex encodes a regular expression. It fails for a pattern that is empty or that Envoy would refuse.
func regex(pattern string) (*matcherv3.RegexMatcher, error) {
	if pattern == "" {
		return nil, errEmptyMatch
	}
	if err := model.CheckRegex(pattern); err != nil {
		return nil, err
	}
	return &matcherv3.RegexMatcher{Regex: pattern}, nil
}
