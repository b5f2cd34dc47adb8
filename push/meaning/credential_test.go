package meaning

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/cut"
)

func exact(text string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: text}}
}

func headerIs(name, text string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exact(text)}}
}

// routeOf is a route for requests with a credential in each place, which also adds one.
func routeOf(secret string) *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
			Headers: []*routev3.HeaderMatcher{headerIs("authorization", secret), headerIs("Cookie", secret), headerIs("x-version", "v2"),
				headerIs("x-other", "Bearer "+secret)},
			QueryParameters: []*routev3.QueryParameterMatcher{{Name: "access_token",
				QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{StringMatch: exact(secret)}}}},
		RequestHeadersToAdd: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-api-key", Value: secret}},
			{Header: &corev3.HeaderValue{Key: "x-api-key", Value: secret}, KeepEmptyValue: true}},
		Action: &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{
			PathRewriteSpecifier: &routev3.RedirectAction_PathRedirect{PathRedirect: "/?token=" + secret}}},
	}
}

// Texts have no credentials, and still report that one changes.
// Promise: plan.md#no-credential
func TestTextsHaveNoCredential(t *testing.T) {
	const first, second = "hunter2hunter2", "swordfish-swordfish"
	a, b := ruleOf(routeOf(first)), ruleOf(routeOf(second))
	var c, policy change
	a.compare(&c, b)
	permits := func(secret string) *rbacv3.Permission {
		return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: headerIs("authorization", secret)}}
	}
	policy.others(&rbacv3.Policy{Permissions: []*rbacv3.Permission{permits(first)}},
		&rbacv3.Policy{Permissions: []*rbacv3.Permission{permits(second)}})
	words := Brief(&securityv1.Rule{When: []*securityv1.Condition{
		{Key: "request.headers[authorization]", Values: []string{first}, NotValues: []string{second}}}}, maxText)
	text := fmt.Sprint(a.match, a.headers, a.action, a.label(), c, policy, words, permissionText(permits(first)))
	if strings.Contains(text, first) || strings.Contains(text, second) || !strings.Contains(a.match, "x-version=v2") {
		t.Errorf("%s", text)
	}
	for what, has := range map[string]bool{"match": strings.Contains(c.String(), "match"),
		"headers": strings.Contains(c.String(), "the value of a credential changes"),
		"policy":  len(policy) == 1, "rule": strings.Count(words, cut.Cut) == 2} {
		if !has {
			t.Errorf("%s: %s, %s, %s", what, c, policy, words)
		}
	}
	// Rules that differ in a credential alone are two rules.
	if pairs := pairRules([]rule{a}, []rule{b, a}); len(pairs) != 2 || pairs[1].old != 0 {
		t.Errorf("%v", pairs)
	}
}
