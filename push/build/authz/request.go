package authz

//lint:file-ignore SA1019 metadata is what the proxies in the field know; what it is to be replaced with is younger than they are

import (
	"regexp"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/build/jwt"
	"navarch.io/navarch/store/model"
)

// readsToken says whether a key of `when` is about the token of a request; path is the claim that it names, each part inside of the one before. Of
// request.auth.principal, which is two claims, there is none.
func readsToken(key string) (path []string, is bool) {
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

// token draws a condition about the token of a request, as the filter before has verified it.
func token(path, values, not []string) []*rbacv3.Principal {
	if path == nil {
		return principalsOf(values, not, requestPrincipal)
	}
	var out []*rbacv3.Principal
	if len(values) > 0 {
		out = append(out, claim(path, values))
	}
	if len(not) > 0 {
		out = append(out, &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: claim(path, not)}})
	}
	return out
}

// requestPrincipal is issuer/subject: "*" is anybody who has shown a good token; one of the parts may begin or end with "*". The subject begins behind the
// last slash, since issuers are URLs.
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

// claim is one of some values of a claim: its text, or an element of it where it is a list.
func claim(path, values []string) *rbacv3.Principal {
	var each []*matcherv3.ValueMatcher
	for _, v := range values {
		each = append(each, stringValue(text(v, false)))
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Metadata{Metadata: Claim(path, orValues(each))}}
}

// Claim matches a claim of the verified token, each part of path inside of the one before: its value, or an element of it where it is a list.
func Claim(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return payload(path, orValues([]*matcherv3.ValueMatcher{element(value), value}))
}

// payload matches what stands at a path in the claims of the verified token.
func payload(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return metadata(jwt.FilterName, append([]string{jwt.Payload}, path...), value)
}

// element is a list that has a value.
func element(value *matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{
		MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: value},
	}}}
}

// verified is a claim of the token that was verified.
func verified(path []string, value *matcherv3.ValueMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Metadata{Metadata: payload(path, value)}}
}

func metadata(filter string, path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	m := &matcherv3.MetadataMatcher{Filter: filter, Value: value}
	for _, key := range path {
		m.Path = append(m.Path, &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}})
	}
	return m
}

func stringValue(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
}

func orValues(all []*matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	if len(all) == 1 {
		return all[0]
	}
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{OrMatch: &matcherv3.OrMatcher{ValueMatchers: all}}}
}

// metadataKey is experimental.envoy.filters.a.b[c]: the key c of what the filter envoy.filters.a.b has found.
var metadataKey = regexp.MustCompile(`^experimental\.(envoy\.filters\.[^\[\]]+)\[([^\]]+)\]$`)

// found draws a condition about what another filter has found: a value [v] is an element of a list. Nil: the key is of another kind.
func found(key string) func(values []string) *rbacv3.Permission {
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

// together: one of the values, and none of the others, where one matcher takes all of them.
func together(values, not []string, all func([]string) *rbacv3.Permission) (out []*rbacv3.Permission) {
	if len(values) > 0 {
		out = append(out, all(values))
	}
	if len(not) > 0 {
		out = append(out, &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: all(not)}})
	}
	return out
}
