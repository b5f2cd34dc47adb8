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

// text matches a string in the notation of Istio's policies. "*" matches every text except the empty one, "*x" a text
// that ends in x, and "x*" a text that begins with x. Other values match exactly.
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

// pattern matches a string by a regular expression.
func pattern(re string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: re}}}
}

// authenticated matches the identity of the peer's certificate.
func authenticated(m *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m}}}
}

// fromNamespace matches every identity with the namespace anywhere in its path. Identities of other meshes may have
// further path segments, and must not evade a DENY policy with these segments. The expression is Istio's, so that a
// policy keeps its meaning.
func (d *ruleBuilder) fromNamespace(v string) *rbacv3.Principal {
	return authenticated(pattern(".*/ns/" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, ".*") + "/.*"))
}

// account matches the identities of a service account. The argument v is namespace/name, or a name in the policy's own
// namespace. The path of the identity may have further segments, as for fromNamespace.
func (d *ruleBuilder) account(v string) *rbacv3.Principal {
	namespace, name, ok := strings.Cut(v, "/")
	if !ok {
		namespace, name = d.namespace, v
	}
	namespace, name = regexp.QuoteMeta(namespace), regexp.QuoteMeta(name)
	return authenticated(pattern("spiffe://.+/ns/" + namespace + "/(.+/|)sa/" + name + "(/.+)?"))
}

// header matches requests whose header has a value in the notation of the function text; "*" matches the header's
// presence.
func header(name, v string) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: headerMatch(name, v, false)}}
}

// inlineHeader matches requests whose header is a comma-separated list with a value in the notation of the function
// text (Istio: InlineHeaderMatcher in pilot/pkg/security/authz/matcher).
func inlineHeader(name, v string) *rbacv3.Principal {
	if v == "*" {
		return header(name, v)
	}
	one := regexp.QuoteMeta(v)
	if end, is := strings.CutPrefix(v, "*"); is {
		one = ".*" + regexp.QuoteMeta(end)
	} else if start, is := strings.CutSuffix(v, "*"); is {
		one = regexp.QuoteMeta(start) + ".*"
	}
	match := &routev3.HeaderMatcher_StringMatch{StringMatch: pattern("(.*,)?" + one + "(,.*)?")}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{
		Header: &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: match},
	}}
}

// headerMatch encodes a match on a header; "*" matches its presence.
func headerMatch(name, v string, ignoreCase bool) *routev3.HeaderMatcher {
	if v == "*" {
		return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
	}
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: text(v, ignoreCase)}}
}

// host matches the host of a request, in upper or lower case.
func host(v string) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: headerMatch(":authority", v, true)}}
}

// anyForm matches the host of a request in upper or lower case, with or without trailing dots. If v has no port, the
// match ignores text after a colon or comma, because a wildcard's virtual host may serve such hosts.
func anyForm(v string) *rbacv3.Permission {
	if strings.HasSuffix(v, "*") {
		return host(v)
	}
	name, after := v, "([:,].*)?"
	if i := strings.LastIndexByte(v, ':'); i >= 0 && strings.Trim(v[i+1:], "0123456789") == "" {
		name, after = v[:i], regexp.QuoteMeta(v[i:])
	}
	more := regexp.QuoteMeta(name)
	if end, is := strings.CutPrefix(name, "*"); is {
		more = ".*" + regexp.QuoteMeta(end)
	}
	form := &routev3.HeaderMatcher_StringMatch{StringMatch: pattern("(?i)" + more + `\.*` + after)}
	return orPermissions([]*rbacv3.Permission{host(v), {Rule: &rbacv3.Permission_Header{
		Header: &routev3.HeaderMatcher{Name: ":authority", HeaderMatchSpecifier: form},
	}}})
}

// method matches the method of a request.
func method(v string) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: headerMatch(":method", v, false)}}
}

// path matches the path of a request, either in the notation of the function text or by a template. In a template,
// {*} stands for one segment, and {**} for any number of segments
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/#Operation).
func path(v string) *rbacv3.Permission {
	if model.IsPathTemplate(v) {
		template := strings.NewReplacer("{*}", "*", "{**}", "**").Replace(v)
		return &rbacv3.Permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
			Name:        "uri-template",
			TypedConfig: xds.Any(&templatev3.UriTemplateMatchConfig{PathTemplate: template}),
		}}}
	}
	match := &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: text(v, false)}}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: match}}
}

// serverName matches the SNI of a connection.
func serverName(v string) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: text(v, false)}}
}

// Range parses an IP address or a CIDR as an address range of Envoy, and clears the host bits. A single address becomes
// a range of one address, without an IPv6 zone. For any other text Range returns nil and false. The caller owns the
// result.
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

// directIP matches the source address of the connection.
func directIP(v string) *rbacv3.Principal {
	r, ok := Range(v)
	if !ok {
		return neverPrincipal()
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: r}}
}

// remoteIP matches the client's address, which a trusted proxy may have forwarded.
func remoteIP(v string) *rbacv3.Principal {
	r, ok := Range(v)
	if !ok {
		return neverPrincipal()
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: r}}
}

// destinationIP matches the destination address of the connection.
func destinationIP(v string) *rbacv3.Permission {
	r, ok := Range(v)
	if !ok {
		return neverPermission()
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: r}}
}

// principalsOf returns principals that together require one of the elements of values, and reject all elements of
// excluded. If both lists are empty, the result is nil. The function construct returns the principal of one element.
func principalsOf(values, excluded []string, construct func(string) *rbacv3.Principal) (out []*rbacv3.Principal) {
	each := func(list []string) *rbacv3.Principal {
		var all []*rbacv3.Principal
		for _, v := range list {
			all = append(all, construct(v))
		}
		return orPrincipals(all)
	}
	if len(values) > 0 {
		out = append(out, each(values))
	}
	if len(excluded) > 0 {
		out = append(out, &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: each(excluded)}})
	}
	return out
}

// permissionsOf returns permissions that together require one of the elements of values, and reject all elements of
// excluded. If both lists are empty, the result is nil. The function construct returns the permission of one element.
func permissionsOf(values, excluded []string, construct func(string) *rbacv3.Permission) (out []*rbacv3.Permission) {
	each := func(list []string) *rbacv3.Permission {
		var all []*rbacv3.Permission
		for _, v := range list {
			all = append(all, construct(v))
		}
		return orPermissions(all)
	}
	if len(values) > 0 {
		out = append(out, each(values))
	}
	if len(excluded) > 0 {
		out = append(out, &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: each(excluded)}})
	}
	return out
}

// orPrincipals returns a principal that matches if one element of principals matches. An element that is itself a list
// of alternatives is replaced by these alternatives.
func orPrincipals(principals []*rbacv3.Principal) *rbacv3.Principal {
	if len(principals) == 1 {
		return principals[0]
	}
	var all []*rbacv3.Principal
	for _, p := range principals {
		if several := p.GetOrIds().GetIds(); len(several) > 0 {
			all = append(all, several...)
		} else {
			all = append(all, p)
		}
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: all}}}
}

// andPrincipals matches if all principals match; without principals it matches everything.
func andPrincipals(all []*rbacv3.Principal) *rbacv3.Principal {
	switch len(all) {
	case 0:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	case 1:
		return all[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: all}}}
}

// orPermissions returns a permission that matches if one of the permissions matches.
func orPermissions(all []*rbacv3.Permission) *rbacv3.Permission {
	if len(all) == 1 {
		return all[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: all}}}
}

// andPermissions matches if all permissions match; without permissions it matches everything.
func andPermissions(all []*rbacv3.Permission) *rbacv3.Permission {
	switch len(all) {
	case 0:
		return &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
	case 1:
		return all[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: all}}}
}

// neverPrincipal matches nothing.
func neverPrincipal() *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: andPrincipals(nil)}}
}

// neverPermission matches nothing.
func neverPermission() *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: andPermissions(nil)}}
}
