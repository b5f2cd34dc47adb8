package authz

import (
	"regexp"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// ownDomain is the trust domain by which policies name the mesh's own trust domain, whatever its name.
const ownDomain = "cluster.local"

// principal matches the identities of a principal of a policy (without "spiffe://") and of its aliases.
func (d *ruleBuilder) principal(v string) *rbacv3.Principal {
	var all []*rbacv3.Principal
	for _, one := range aliases(d.domains, v) {
		all = append(all, authenticated(spiffe(one)))
	}
	return orPrincipals(all)
}

// aliases returns the principals that a principal of a policy means. If its trust domain is one of the mesh's, or a
// pattern of one, they are its path in each of the mesh's domains; a pattern "*x" stays for the domains that it
// matches. Principals of another form than DOMAIN/ns/NAMESPACE/sa/ACCOUNT have no aliases, and neither have those of
// any domain ("*/ns/..."), as in istiod (pilot/pkg/security/trustdomain).
func aliases(domains []string, principal string) []string {
	domain, path, _ := strings.Cut(principal, "/")
	own := domain == ownDomain || slices.ContainsFunc(domains, func(one string) bool { return overlap(one, domain) })
	if strings.Count(principal, "/") != 4 || domain == "*" || !own {
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

// overlap reports whether two trust domains are equal, or one is a pattern ("*x" or "x*") that matches the other.
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

// spiffe matches SPIFFE IDs by a principal, or by a pattern of principals in the notation of text.
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

// trustDomain matches the identities of a trust domain: "*" is any, "*x" one that ends in x, "x*" one that begins with
// x. A domain of the mesh means all domains of the mesh; patterns have no aliases, as in istiod.
func (d *ruleBuilder) trustDomain(v string) *rbacv3.Principal {
	if !slices.Contains(d.domains, v) {
		return fromTrustDomain(v)
	}
	var all []*rbacv3.Principal
	for _, one := range d.domains {
		all = append(all, fromTrustDomain(one))
	}
	return orPrincipals(all)
}

// fromTrustDomain matches the identities of one trust domain, or of the domains that a pattern matches.
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
