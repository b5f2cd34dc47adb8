package authz

//lint:file-ignore SA1019 metadata matchers are deprecated, but their replacement is not in all supported proxy versions

import (
	"regexp"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/build/jwt"
	"navarch.io/navarch/store/model"
)

// tokenClaim reports whether a key of `when` names a claim of the request's token. The result path has the names that
// lead to the claim, the outermost first. It is nil for request.auth.principal, which combines the claims iss and sub.
func tokenClaim(key string) (path []string, is bool) {
	switch key {
	case "request.auth.principal":
		return nil, true
	case "request.auth.audiences":
		return []string{"aud"}, true
	case "request.auth.presenter":
		return []string{"azp"}, true
	}
	return model.ClaimPath(key)
}

// tokenCondition returns principals for a claim of the token that the filter jwt_authn has verified. Together the
// principals require one of the elements of values, and reject all elements of excluded. A nil path stands for
// request.auth.principal.
func tokenCondition(path, values, excluded []string) []*rbacv3.Principal {
	if path == nil {
		return principalsOf(values, excluded, requestPrincipal)
	}
	var out []*rbacv3.Principal
	if len(values) > 0 {
		out = append(out, claim(path, values))
	}
	if len(excluded) > 0 {
		out = append(out, &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: claim(path, excluded)}})
	}
	return out
}

// requestPrincipal matches the principal issuer/subject of a request. The value "*" matches every request with a valid
// token that has an issuer and a subject. "*x/y" matches the subject y of issuers that end in x. "x/y*" matches
// subjects of the issuer x that begin with y. Without a slash, "*x" matches subjects that end in x, and "x*" matches
// issuers that begin with x. The subject begins after the last slash, since issuers are URLs.
func requestPrincipal(v string) *rbacv3.Principal {
	issuer, subject, at := v, "", strings.LastIndex(v, "/")
	if at >= 0 {
		issuer, subject = v[:at], v[at+1:]
	}
	anything := pattern(".+")
	exact := func(s string) *matcherv3.StringMatcher {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
	}
	iss, sub := exact(issuer), exact(subject)
	switch {
	case v == "*":
		iss, sub = anything, anything
	case strings.HasPrefix(v, "*") && at < 0:
		iss, sub = anything, text(v, false)
	case strings.HasPrefix(v, "*"):
		iss = text(issuer, false)
	case strings.HasSuffix(v, "*") && at < 0:
		iss, sub = text(v, false), anything
	case strings.HasSuffix(v, "*"):
		sub = text(subject, false)
	}
	return andPrincipals([]*rbacv3.Principal{verified([]string{"iss"}, stringValue(iss)), verified([]string{"sub"}, stringValue(sub))})
}

// claim matches a claim with one of the values, in the notation of the function text. A list matches if one of its
// elements has such a value.
func claim(path, values []string) *rbacv3.Principal {
	var each []*matcherv3.ValueMatcher
	for _, v := range values {
		each = append(each, stringValue(text(v, false)))
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Metadata{Metadata: Claim(path, orValues(each))}}
}

// Claim returns a matcher of a claim in the token that Envoy's filter jwt_authn has verified. The argument path has the
// names that lead to the claim, the outermost first. The returned matcher matches if the argument value matches the
// claim. It also matches if the claim is a list and the argument value matches one of the elements. The result refers
// to value, but not to path.
func Claim(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return payload(path, orValues([]*matcherv3.ValueMatcher{element(value), value}))
}

// payload matches the value at a path in the claims of the verified token.
func payload(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return metadata(jwt.FilterName, append([]string{jwt.Payload}, path...), value)
}

// element matches a list with an element that matches value.
func element(value *matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{
		MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: value},
	}}}
}

// verified matches a claim of the verified token.
func verified(path []string, value *matcherv3.ValueMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Metadata{Metadata: payload(path, value)}}
}

// metadata matches a value at a path in the dynamic metadata of a filter.
func metadata(filter string, path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	m := &matcherv3.MetadataMatcher{Filter: filter, Value: value}
	for _, key := range path {
		m.Path = append(m.Path, &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}})
	}
	return m
}

// stringValue matches a value that is a string, by a matcher of strings.
func stringValue(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
}

// orValues matches a value if one of the matchers does.
func orValues(all []*matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	if len(all) == 1 {
		return all[0]
	}
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{OrMatch: &matcherv3.OrMatcher{ValueMatchers: all}}}
}

// metadataKey matches keys of `when` for the metadata of other filters. For example, experimental.envoy.filters.a.b[c]
// is the key c in the metadata of the filter envoy.filters.a.b.
var metadataKey = regexp.MustCompile(`^experimental\.(envoy\.filters\.[^\[\]]+)\[([^\]]+)\]$`)

// metadataCondition returns a constructor of the permission for a condition on another filter's metadata. The
// permission requires one of the values. If the key does not match metadataKey, the result is nil. A value "[v]"
// matches an element of a list.
func metadataCondition(key string) func(values []string) *rbacv3.Permission {
	parts := metadataKey.FindStringSubmatch(key)
	if parts == nil {
		return nil
	}
	return func(values []string) *rbacv3.Permission {
		var each []*matcherv3.ValueMatcher
		for _, v := range values {
			if inner, is := strings.CutPrefix(v, "["); is && strings.HasSuffix(v, "]") {
				each = append(each, element(stringValue(text(strings.TrimSuffix(inner, "]"), false))))
			} else {
				each = append(each, stringValue(text(v, false)))
			}
		}
		return &rbacv3.Permission{Rule: &rbacv3.Permission_Metadata{Metadata: metadata(parts[1], parts[2:], orValues(each))}}
	}
}

// permissionsOfAll is like permissionsOf, but the function construct takes a list. It returns one permission, which
// requires one of the values in the list.
func permissionsOfAll(values, excluded []string, construct func([]string) *rbacv3.Permission) (out []*rbacv3.Permission) {
	if len(values) > 0 {
		out = append(out, construct(values))
	}
	if len(excluded) > 0 {
		out = append(out, &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: construct(excluded)}})
	}
	return out
}
