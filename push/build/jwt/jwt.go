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
// a request may come without a token, but for those of rules whose presence is REQUIRED; a token that it shows has to be good by one rule. Nil: there are no rules. Policies are in the order in which
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
	d := &demand{}
	for i, rule := range rules {
		name := fmt.Sprintf("origins-%d", i)
		filter.Providers[name] = provider(rule)
		d.add(name, rule)
	}
	filter.Rules = []*jwtv3.RequirementRule{{
		Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: d.requirement()},
	}}
	return filter
}

// demand joins the requirements of several rules about the tokens of a request.
type demand struct {
	required []*jwtv3.JwtRequirement // tokens that have to be there, and good
	good     []*jwtv3.JwtRequirement // tokens that may be there, good
	place    []*jwtv3.JwtRequirement // the same, good or missing
	// Where both kinds are looked for.
	requiredAt, optionalAt []string
}

func (d *demand) add(provider string, rule *securityv1.JWTRule) {
	by := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: provider}}
	if rule.GetPresence() == securityv1.JWTRule_REQUIRED {
		d.required, d.requiredAt = append(d.required, by), append(d.requiredAt, places(rule)...)
		return
	}
	missing := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
	d.good, d.place, d.optionalAt = append(d.good, by), append(d.place, anyOf(by, missing)), append(d.optionalAt, places(rule)...)
}

// requirement is all that is required; of the other tokens one good one will do, else each provider's place has to have a good one, or none. Where a
// required token stands at such a place, it will do there.
func (d *demand) requirement() *jwtv3.JwtRequirement {
	shared := slices.ContainsFunc(d.optionalAt, func(at string) bool { return slices.Contains(d.requiredAt, at) })
	optional := d.place
	switch {
	case len(d.good) > 0 && shared:
		optional = []*jwtv3.JwtRequirement{anyOf(slices.Concat(d.good, d.required)...)}
	case len(d.good) > 1:
		optional = []*jwtv3.JwtRequirement{anyOf(append(slices.Clone(d.good), allOf(d.place))...)}
	}
	return allOf(slices.Concat(d.required, optional))
}

// places lists the headers, parameters and cookies in which Envoy looks for the tokens of a rule.
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
	if len(all) == 0 { // as Envoy does where a provider says nothing
		return []string{"header authorization", "parameter access_token"}
	}
	return all
}

func allOf(all []*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	if len(all) == 1 {
		return all[0]
	}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: all}}}
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
