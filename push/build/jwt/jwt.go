// Package jwt draws RequestAuthentications: records in, the configuration of Envoy's jwt_authn filter out.
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

// FilterName is the filter's name, by which rules of RBAC filters find what it has verified.
const FilterName = "envoy.filters.http.jwt_authn"

// Payload is the key, in the filter's metadata, of the claims of a verified token.
const Payload = "payload"

// alwaysSplit are the claims whose text is a list with spaces between its elements, whatever a rule says
// (https://datatracker.ietf.org/doc/html/rfc8693#section-4.2), as Istio's control plane has it.
var alwaysSplit = []string{"permission", "scope"}

// Filter is what policies demand of tokens together, by Istio's rules (https://istio.io/latest/docs/reference/config/security/request_authentication/):
// a request may come without a token; a token that it shows has to be good by one rule. Nil: there are no rules. Policies are in the order in which
// they are older, those of the root namespace first.
func Filter(policies []*model.Policy) *jwtv3.JwtAuthentication {
	var rules []*securityv1.JWTRule
	for _, p := range policies {
		rules = append(rules, model.Authentication(p).GetJwtRules()...)
	}
	if len(rules) == 0 {
		return nil
	}
	slices.SortStableFunc(rules, func(a, b *securityv1.JWTRule) int { return strings.Compare(a.GetIssuer(), b.GetIssuer()) })
	filter := &jwtv3.JwtAuthentication{Providers: map[string]*jwtv3.JwtProvider{}, BypassCorsPreflight: true}
	var one, each []*jwtv3.JwtRequirement
	for i, rule := range rules {
		name := fmt.Sprintf("origins-%d", i)
		filter.Providers[name] = provider(rule)
		by := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: name}}
		missing := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
		one, each = append(one, by), append(each, anyOf(by, missing))
	}
	demand := each[0]
	if len(rules) > 1 {
		// One good token will do; else each provider's place has to have a good one, or none.
		demand = anyOf(append(one, &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{
			RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: each},
		}})...)
	}
	filter.Rules = []*jwtv3.RequirementRule{{
		Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: demand},
	}}
	return filter
}

func anyOf(all ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAny{RequiresAny: &jwtv3.JwtRequirementOrList{Requirements: all}}}
}

// provider draws one rule. Without keys it has one that verifies nothing: what shows a token of the issuer is refused.
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
