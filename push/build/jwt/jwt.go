// Package jwt builds the configuration of Envoy's jwt_authn filter from RequestAuthentications.
//
// Owns: nothing.  Reads: its arguments.  Never: decides which policies select a workload; fetches keys.
package jwt

import (
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// FilterName is the name of the filter. In the dynamic metadata, Envoy stores the claims of verified tokens under this
// name.
const FilterName = "envoy.filters.http.jwt_authn"

// Payload is the key of a verified token's claims in the metadata of FilterName.
const Payload = "payload"

// alwaysSplit lists the claims that are space-delimited lists in every rule, as in Istio
// (https://datatracker.ietf.org/doc/html/rfc8693#section-4.2).
var alwaysSplit = []string{"permission", "scope"}

// Filter returns the filter configuration for all RequestAuthentications of a workload, by Istio's semantics
// (https://istio.io/latest/docs/reference/config/security/request_authentication/). It returns nil if the policies have
// no rules. The caller must sort the policies: those of the root namespace first, then by age, the oldest first. The
// result refers to the policies, so it must not be modified.
//
// A request needs a valid token for each rule with presence REQUIRED. For the remaining rules, the request needs a
// token that is valid for one of them, or must have no invalid token. If a required and another rule read tokens from
// the same header, parameter or cookie, a valid token of a required rule suffices for the remaining rules. A rule
// without keys accepts no token. CORS preflight requests need no token.
//
// If routed is true, Envoy selects the route again after it has verified a token, because claims decide routes.
func Filter(policies []*model.Policy, routed bool) *jwtv3.JwtAuthentication {
	var rules []*securityv1.JWTRule
	for _, p := range policies {
		rules = append(rules, model.Authentication(p).GetJwtRules()...)
	}
	if len(rules) == 0 {
		return nil
	}
	slices.SortStableFunc(rules, func(a, b *securityv1.JWTRule) int { return strings.Compare(a.GetIssuer(), b.GetIssuer()) })
	filter := &jwtv3.JwtAuthentication{Providers: map[string]*jwtv3.JwtProvider{}, BypassCorsPreflight: true}
	d := &requirements{}
	for i, rule := range rules {
		name := fmt.Sprintf("origins-%d", i)
		filter.Providers[name] = provider(rule)
		filter.Providers[name].ClearRouteCache = routed
		d.add(name, rule)
	}
	filter.Rules = []*jwtv3.RequirementRule{{
		Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: d.requirement()},
	}}
	return filter
}

// requirements combines the requirements of several rules on the tokens of a request.
type requirements struct {
	required      []*jwtv3.JwtRequirement // for each required rule: a valid token
	good          []*jwtv3.JwtRequirement // for each optional rule: a valid token
	goodOrMissing []*jwtv3.JwtRequirement // for each optional rule: a valid token, or no token
	// requiredAt and optionalAt are the places of the tokens of required and of optional rules, as places returns them.
	requiredAt, optionalAt []string
}

// add adds the requirement of a rule. provider is the name of the rule's entry in the filter's providers.
func (d *requirements) add(provider string, rule *securityv1.JWTRule) {
	by := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: provider}}
	if rule.GetPresence() == securityv1.JWTRule_REQUIRED {
		d.required, d.requiredAt = append(d.required, by), append(d.requiredAt, places(rule)...)
		return
	}
	missing := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
	d.good, d.goodOrMissing = append(d.good, by), append(d.goodOrMissing, anyOf(by, missing))
	d.optionalAt = append(d.optionalAt, places(rule)...)
}

// requirement returns the combined requirement. Every required rule needs a valid token. The optional rules hold if one
// of them has a valid token, or if no token at their places is invalid. If required and optional rules share a place, a
// valid token of a required rule also satisfies the optional rules.
func (d *requirements) requirement() *jwtv3.JwtRequirement {
	shared := slices.ContainsFunc(d.optionalAt, func(at string) bool { return slices.Contains(d.requiredAt, at) })
	optional := d.goodOrMissing
	switch {
	case len(d.good) > 0 && shared:
		optional = []*jwtv3.JwtRequirement{anyOf(slices.Concat(d.good, d.required)...)}
	case len(d.good) > 1:
		optional = []*jwtv3.JwtRequirement{anyOf(append(slices.Clone(d.good), allOf(d.goodOrMissing))...)}
	}
	return allOf(slices.Concat(d.required, optional))
}

// places lists the headers, parameters and cookies from which Envoy extracts the tokens of a rule.
func places(rule *securityv1.JWTRule) (all []string) {
	for _, header := range rule.GetFromHeaders() {
		all = append(all, "header "+strings.ToLower(header.GetName()))
	}
	for _, name := range rule.GetFromParams() {
		all = append(all, "parameter "+name)
	}
	for _, name := range rule.GetFromCookies() {
		all = append(all, "cookie "+name)
	}
	if len(all) == 0 { // Envoy's default places
		return []string{"header authorization", "parameter access_token"}
	}
	return all
}

// allOf returns a requirement that holds if all of the given requirements hold.
func allOf(all []*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	if len(all) == 1 {
		return all[0]
	}
	list := &jwtv3.JwtRequirementAndList{Requirements: all}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{RequiresAll: list}}
}

// anyOf returns a requirement that holds if one of the given requirements holds.
func anyOf(all ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	list := &jwtv3.JwtRequirementOrList{Requirements: all}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAny{RequiresAny: list}}
}

// provider returns the provider of one rule. A rule without keys gets a key set that verifies no token. So requests
// with a token of the issuer are refused.
func provider(rule *securityv1.JWTRule) *jwtv3.JwtProvider {
	keys := rule.GetJwks()
	if keys == "" {
		keys = NoKeys()
	}
	split := slices.Concat(rule.GetSpaceDelimitedClaims(), alwaysSplit)
	slices.Sort(split)
	p := &jwtv3.JwtProvider{
		Issuer:                     rule.GetIssuer(),
		Audiences:                  rule.GetAudiences(),
		FromParams:                 rule.GetFromParams(),
		FromCookies:                rule.GetFromCookies(),
		Forward:                    rule.GetForwardOriginalToken(),
		ForwardPayloadHeader:       rule.GetOutputPayloadToHeader(),
		PayloadInMetadata:          Payload,
		NormalizePayloadInMetadata: &jwtv3.JwtProvider_NormalizePayload{SpaceDelimitedClaims: slices.Compact(split)},
		JwksSourceSpecifier: &jwtv3.JwtProvider_LocalJwks{LocalJwks: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: keys},
		}},
	}
	for _, at := range rule.GetFromHeaders() {
		p.FromHeaders = append(p.FromHeaders, &jwtv3.JwtHeader{Name: at.GetName(), ValuePrefix: at.GetPrefix()})
	}
	for _, claim := range rule.GetOutputClaimToHeaders() {
		p.ClaimToHeaders = append(p.ClaimToHeaders, &jwtv3.JwtClaimToHeader{HeaderName: claim.GetHeader(), ClaimName: claim.GetClaim()})
	}
	return p
}
