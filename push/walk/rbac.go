package walk

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// denied applies an RBAC filter, and reports whether the filter refuses the connection or request. It returns false for
// any other filter.
func (w *walker) denied(config *anypb.Any) bool {
	http, tcp := &httprbacv3.RBAC{}, &tcprbacv3.RBAC{}
	var rules, shadow *rbacv3.RBAC
	filter, prefix := "", ""
	switch {
	case config.MessageIs(http) && config.UnmarshalTo(http) == nil:
		filter, rules, shadow, prefix = "envoy.filters.http.rbac", http.GetRules(), http.GetShadowRules(), http.GetShadowRulesStatPrefix()
	case config.MessageIs(tcp) && config.UnmarshalTo(tcp) == nil:
		filter, rules, shadow, prefix = "envoy.filters.network.rbac", tcp.GetRules(), tcp.GetShadowRules(), tcp.GetShadowRulesStatPrefix()
	}
	if by := w.policyOf(shadow); by != "" { // the filter ext_authz reads the policy's name
		w.store(filter, prefix+"shadow_effective_policy_id", by)
	}
	if rules == nil || rules.GetAction() == rbacv3.RBAC_LOG {
		return false
	}
	by := w.policyOf(rules)
	w.result.Policy = by
	deny := rules.GetAction() == rbacv3.RBAC_DENY
	switch {
	case deny && by != "":
		w.refuse(Refusal{By: by})
	case !deny && by == "" && len(rules.GetPolicies()) == 0:
		w.refuse(Refusal{Closing: closing(w.Held)})
	case !deny && by == "":
		w.refuse(Refusal{Of: slices.Sorted(maps.Keys(rules.GetPolicies()))})
	default:
		return false
	}
	return true
}

// refuse adds the step of a refusal, and stores the refusal.
func (w *walker) refuse(r Refusal) {
	text := r.String()
	if r.By == "" {
		text = "denied: " + text
	}
	w.step("%s", text)
	w.result.Refusal = &r
}

// policyOf returns the name of the first policy that matches, or "" if no policy matches. As in Envoy, policies are
// checked in order of their names.
func (w *walker) policyOf(rules *rbacv3.RBAC) string {
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		p := rules.GetPolicies()[name]
		if slices.ContainsFunc(p.GetPermissions(), w.permitted) && slices.ContainsFunc(p.GetPrincipals(), w.isPrincipal) {
			return name
		}
	}
	return ""
}

// permitted reports whether a permission matches the request.
func (w *walker) permitted(p *rbacv3.Permission) bool {
	path, _, _ := strings.Cut(w.Headers[":path"], "?")
	switch p := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return p.Any
	case *rbacv3.Permission_AndRules:
		return !slices.ContainsFunc(p.AndRules.GetRules(), func(one *rbacv3.Permission) bool { return !w.permitted(one) })
	case *rbacv3.Permission_OrRules:
		return slices.ContainsFunc(p.OrRules.GetRules(), w.permitted)
	case *rbacv3.Permission_NotRule:
		return !w.permitted(p.NotRule)
	case *rbacv3.Permission_DestinationPort:
		return p.DestinationPort == w.Port
	case *rbacv3.Permission_DestinationIp:
		return within(p.DestinationIp, w.Address)
	case *rbacv3.Permission_Header:
		return w.headersMatch([]*routev3.HeaderMatcher{p.Header})
	case *rbacv3.Permission_Metadata:
		//lint:ignore SA1019 proxies of all supported versions have it alone
		return w.metadataMatches(p.Metadata)
	case *rbacv3.Permission_RequestedServerName:
		return stringMatches(p.RequestedServerName, w.serverName())
	case *rbacv3.Permission_UriTemplate:
		return templateMatches(p.UriTemplate.GetTypedConfig(), path)
	case *rbacv3.Permission_UrlPath:
		return stringMatches(p.UrlPath.GetPath(), path)
	}
	w.step("unknown permission %T", p.GetRule())
	w.doubt(Possible, "a permission of an unknown kind, %T, is taken as no match", p.GetRule())
	return false
}

// isPrincipal reports whether a principal matches the client.
func (w *walker) isPrincipal(p *rbacv3.Principal) bool {
	switch p := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return p.Any
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(p.AndIds.GetIds(), func(one *rbacv3.Principal) bool { return !w.isPrincipal(one) })
	case *rbacv3.Principal_OrIds:
		return slices.ContainsFunc(p.OrIds.GetIds(), w.isPrincipal)
	case *rbacv3.Principal_NotId:
		return !w.isPrincipal(p.NotId)
	case *rbacv3.Principal_Authenticated_:
		name := p.Authenticated.GetPrincipalName()
		return w.peer != "" && (name == nil || stringMatches(name, w.peer))
	case *rbacv3.Principal_DirectRemoteIp:
		return within(p.DirectRemoteIp, cmp.Or(w.Peer, w.From))
	case *rbacv3.Principal_RemoteIp:
		return within(p.RemoteIp, cmp.Or(w.trusted, w.From))
	case *rbacv3.Principal_Metadata:
		//lint:ignore SA1019 proxies of all supported versions have it alone
		return w.metadataMatches(p.Metadata)
	case *rbacv3.Principal_Header:
		return w.headersMatch([]*routev3.HeaderMatcher{p.Header})
	}
	w.step("unknown principal %T", p.GetIdentifier())
	w.doubt(Possible, "a principal of an unknown kind, %T, is taken as no match", p.GetIdentifier())
	return false
}

// within reports whether a range contains an address.
func within(c *corev3.CidrRange, ip string) bool {
	a, bad := netip.ParseAddr(c.GetAddressPrefix())
	b, worse := netip.ParseAddr(ip)
	return bad == nil && worse == nil && netip.PrefixFrom(a, int(c.GetPrefixLen().GetValue())).Contains(b)
}
