package authz

import (
	"net/netip"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// text matches as Istio's policies do: "*" is anything that is there, "*x" ends in x, "x*" begins with x, else x.
func text(v string, ignoreCase bool) *matcherv3.StringMatcher {
	m := &matcherv3.StringMatcher{IgnoreCase: ignoreCase}
	switch {
	case v == "*":
		return pattern(".+")
	case strings.HasPrefix(v, "*"):
		m.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: v[1:]}
	case strings.HasSuffix(v, "*"):
		m.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: v[:len(v)-1]}
	default:
		m.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: v}
	}
	return m
}

func pattern(re string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: re}}}
}

func authenticated(m *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m}}}
}

// fromNamespace is every identity that has the namespace in its path, wherever: a DENY policy must not be got round by
// segments before, between or behind (trust domains of other meshes have such identities). The expression is the one by
// which Istio's control plane enforces the field, so that the same policy means the same.
func (d *drawing) fromNamespace(v string) *rbacv3.Principal {
	return authenticated(pattern(".*/ns/" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, ".*") + "/.*"))
}

// account is namespace/name, or a name of the policy's own namespace; further segments of the identity's path may stand
// before, between and behind, as in fromNamespace.
func (d *drawing) account(v string) *rbacv3.Principal {
	namespace, name, ok := strings.Cut(v, "/")
	if !ok {
		namespace, name = d.namespace, v
	}
	return authenticated(pattern("spiffe://.+/ns/" + regexp.QuoteMeta(namespace) + "/(.+/|)sa/" + regexp.QuoteMeta(name) + "(/.+)?"))
}

func header(name, v string) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: headerMatch(name, v, false)}}
}

// oneOf matches a header that has the value among others, with commas between them (Istio: InlineHeaderMatcher in pilot/pkg/security/authz/matcher).
func oneOf(name, v string) *rbacv3.Principal {
	if v == "*" {
		return header(name, v)
	}
	one := regexp.QuoteMeta(v)
	if end, is := strings.CutPrefix(v, "*"); is {
		one = ".*" + regexp.QuoteMeta(end)
	} else if start, is := strings.CutSuffix(v, "*"); is {
		one = regexp.QuoteMeta(start) + ".*"
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
		StringMatch: pattern("(.*,)?" + one + "(,.*)?")}}}}
}

func headerMatch(name, v string, ignoreCase bool) *routev3.HeaderMatcher {
	if v == "*" {
		return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
	}
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: text(v, ignoreCase)}}
}

func host(v string) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: headerMatch(":authority", v, true)}}
}

func method(v string) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: headerMatch(":method", v, false)}}
}

// path is text, or a template: {*} is one segment, {**} any number of them
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/#Operation).
func path(v string) *rbacv3.Permission {
	if model.IsPathTemplate(v) {
		return &rbacv3.Permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
			Name:        "uri-template",
			TypedConfig: xds.Any(&templatev3.UriTemplateMatchConfig{PathTemplate: strings.NewReplacer("{*}", "*", "{**}", "**").Replace(v)}),
		}}}
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: text(v, false)}}}}
}

func serverName(v string) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: text(v, false)}}
}

// Range reads an IP or a CIDR.
func Range(v string) (*corev3.CidrRange, bool) {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		a, err := netip.ParseAddr(v)
		if err != nil {
			return nil, false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return &corev3.CidrRange{AddressPrefix: p.Masked().Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}, true
}

func directIP(v string) *rbacv3.Principal {
	r, ok := Range(v)
	if !ok {
		return neverPrincipal()
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: r}}
}

func remoteIP(v string) *rbacv3.Principal {
	r, ok := Range(v)
	if !ok {
		return neverPrincipal()
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: r}}
}

func destinationIP(v string) *rbacv3.Permission {
	r, ok := Range(v)
	if !ok {
		return neverPermission()
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: r}}
}

// principalsOf: one of the values, and none of the others.
func principalsOf(values, not []string, one func(string) *rbacv3.Principal) (out []*rbacv3.Principal) {
	each := func(list []string) *rbacv3.Principal {
		var all []*rbacv3.Principal
		for _, v := range list {
			all = append(all, one(v))
		}
		return orPrincipals(all)
	}
	if len(values) > 0 {
		out = append(out, each(values))
	}
	if len(not) > 0 {
		out = append(out, &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: each(not)}})
	}
	return out
}

// permissionsOf: one of the values, and none of the others.
func permissionsOf(values, not []string, one func(string) *rbacv3.Permission) (out []*rbacv3.Permission) {
	each := func(list []string) *rbacv3.Permission {
		var all []*rbacv3.Permission
		for _, v := range list {
			all = append(all, one(v))
		}
		return orPermissions(all)
	}
	if len(values) > 0 {
		out = append(out, each(values))
	}
	if len(not) > 0 {
		out = append(out, &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: each(not)}})
	}
	return out
}

// orPrincipals is any of the principals; what is any of several itself becomes those.
func orPrincipals(of []*rbacv3.Principal) *rbacv3.Principal {
	if len(of) == 1 {
		return of[0]
	}
	var all []*rbacv3.Principal
	for _, p := range of {
		if several := p.GetOrIds().GetIds(); len(several) > 0 {
			all = append(all, several...)
		} else {
			all = append(all, p)
		}
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: all}}}
}

func andPrincipals(all []*rbacv3.Principal) *rbacv3.Principal {
	switch len(all) {
	case 0:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	case 1:
		return all[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: all}}}
}

func orPermissions(all []*rbacv3.Permission) *rbacv3.Permission {
	if len(all) == 1 {
		return all[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: all}}}
}

func andPermissions(all []*rbacv3.Permission) *rbacv3.Permission {
	switch len(all) {
	case 0:
		return &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
	case 1:
		return all[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: all}}}
}

func neverPrincipal() *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: andPrincipals(nil)}}
}

func neverPermission() *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: andPermissions(nil)}}
}
