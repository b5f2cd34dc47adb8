package authz

import (
	"regexp"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// ownDomain stands for the mesh's own trust domain in the principals of policies, also if the mesh's domain has another
// name.
const ownDomain = "cluster.local"

// principal matches the identities that v, a principal of a policy, means in the mesh's trust domains. v does not begin
// with "spiffe://".
func (d *ruleBuilder) principal(v string) *rbacv3.Principal {
	var all []*rbacv3.Principal
	for _, one := range aliases(d.domains, v) {
		all = append(all, authenticated(spiffe(one)))
	}
	return orPrincipals(all)
}

// aliases returns the principals for which a policy's principal stands, as in istiod (pilot/pkg/security/trustdomain).
// If the principal's trust domain is ownDomain, a domain of the mesh, or a pattern that matches one, the result has the
// principal's path in each domain of the mesh. If a pattern "*x" matches a domain of the mesh, the unchanged principal
// replaces the principal with that domain. The result is only the unchanged principal if the principal does not have
// the five parts of DOMAIN/ns/NAMESPACE/sa/ACCOUNT, or if its domain is "*" or foreign.
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

// spiffe matches the SPIFFE IDs of a principal, or of a pattern "*x" or "x*" of principals.
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

// trustDomain matches the identities of a trust domain. "*" stands for every domain, "*x" for domains that end in x,
// and "x*" for domains that begin with x. A domain of the mesh stands for all domains of the mesh. A pattern stands
// only for the domains that it matches, as in istiod.
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
