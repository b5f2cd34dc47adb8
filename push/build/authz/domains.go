package authz

import (
	"regexp"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// ownDomain is the trust domain by which policies name the mesh's own, whatever that is.
const ownDomain = "cluster.local"

// principal matches the identities of a principal of a policy, without its "spiffe://", and of its aliases.
func (d *drawing) principal(v string) *rbacv3.Principal {
	var all []*rbacv3.Principal
	for _, one := range aliases(d.domains, v) {
		all = append(all, authenticated(spiffe(one)))
	}
	return orPrincipals(all)
}

// aliases are the principals that a principal stands for: where its trust domain is one of the mesh's, or a pattern of one, its path in each of them.
// A pattern "*x" stays as it is in place of the domains that it matches. Principals of another form than DOMAIN/ns/NAMESPACE/sa/ACCOUNT stand for
// themselves, and so do those of any domain ("*/ns/..."), as with istiod (pilot/pkg/security/trustdomain).
func aliases(domains []string, principal string) []string {
	domain, path, _ := strings.Cut(principal, "/")
	if strings.Count(principal, "/") != 4 || domain == "*" || domain != ownDomain && !slices.ContainsFunc(domains, func(one string) bool { return overlap(one, domain) }) {
		return []string{principal}
	}
	var out []string
	for _, one := range domains {
		replaced := one + "/" + path
		if end, is := strings.CutPrefix(domain, "*"); is && strings.HasSuffix(one, end) {
			replaced = principal
		}
		if !slices.Contains(out, replaced) {
			out = append(out, replaced)
		}
	}
	return out
}

// overlap says whether two trust domains are equal, or one is a pattern ("*x" or "x*") of the other.
func overlap(a, b string) bool {
	matches := func(pattern, s string) bool {
		if end, is := strings.CutPrefix(pattern, "*"); is && strings.HasSuffix(s, end) {
			return true
		}
		start, is := strings.CutSuffix(pattern, "*")
		return is && strings.HasPrefix(s, start)
	}
	return a == b || matches(a, b) || matches(b, a)
}

// spiffe matches SPIFFE IDs by a principal or a pattern of principals, as text does.
func spiffe(v string) *matcherv3.StringMatcher {
	const scheme = "spiffe://"
	if end, is := strings.CutPrefix(v, "*"); is && end != "" {
		return pattern(scheme + ".*" + regexp.QuoteMeta(end))
	}
	if v != "*" {
		v = scheme + v
	}
	return text(v, false)
}

// trustDomain matches the identities of a trust domain; "*" is any, "*x" one that ends in x, "x*" one that begins with it. A domain of the mesh stands for
// all of the mesh's; patterns stand for themselves, as with istiod.
func (d *drawing) trustDomain(v string) *rbacv3.Principal {
	if !slices.Contains(d.domains, v) {
		return fromTrustDomain(v)
	}
	var all []*rbacv3.Principal
	for _, one := range d.domains {
		all = append(all, fromTrustDomain(one))
	}
	return orPrincipals(all)
}

// fromTrustDomain matches the identities of one trust domain, or of those that a pattern matches.
func fromTrustDomain(v string) *rbacv3.Principal {
	name := regexp.QuoteMeta(v)
	switch {
	case v == "*":
		name = "[^/]+"
	case strings.HasPrefix(v, "*"):
		name = "[^/]*" + regexp.QuoteMeta(v[1:])
	case strings.HasSuffix(v, "*"):
		name = regexp.QuoteMeta(v[:len(v)-1]) + "[^/]*"
	}
	return authenticated(pattern("spiffe://" + name + "/.*"))
}
