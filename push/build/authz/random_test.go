package authz

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
)

// Names with common beginnings and ends, so that patterns match several of them.
var (
	someDomains  = []string{"td1", "td2", "bar", "foobar", "foo", "cluster.local"}
	someAccounts = []string{"/ns/a/sa/b", "/ns/a/sa/bc", "/ns/ab/sa/b", "/ns/a/x/sa/b"}
)

// TestRandomSources builds random policies on identities in meshes with aliases, and compares the rules with the
// policy's fields for random identities.
func TestRandomSources(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	denied := 0
	for range 1000 {
		own := slices.Clone(someDomains)
		r.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		own = own[:1+r.IntN(3)]
		values := func() (out []string) {
			for range r.IntN(3) {
				out = append(out, randomPrincipal(r, pick))
			}
			return out
		}
		domains := func() (out []string) {
			for range r.IntN(2) {
				out = append(out, randomPattern(r, pick(someDomains)))
			}
			return out
		}
		field := randomSource{values(), values(), domains(), domains(), values(), values()}
		rule := fmt.Sprintf("{from: [{source: {principals: %s, notPrincipals: %s, trustDomains: %s}}], when: [{key: source.trustDomain, notValues: %s}, {key: source.principal, values: %s, notValues: %s}]}",
			list(field.principals), list(field.notPrincipals), list(field.domains), list(field.notDomains), list(field.when), list(field.notWhen))
		deny, _ := Build([]*model.Policy{policy(t, "p", "{action: DENY, rules: ["+rule+"]}")}, &meshv1.MeshConfig{TrustDomain: own[0], TrustDomainAliases: own[1:]}, Requests).Rules()
		for range 20 {
			id := pick(someDomains) + pick(someAccounts)
			principal := deny.GetPolicies()["ns[shop]-policy[p]-rule[0]"].GetPrincipals()[0]
			got, want := principalMatches(principal, "spiffe://"+id), field.matches(own, id)
			if got != want {
				t.Fatalf("in %v the rule %s matches %s: %v, want %v\n%v", own, rule, id, got, want, principal)
			}
			if got {
				denied++
			}
		}
	}
	if denied < 500 {
		t.Errorf("only %d were denied", denied)
	}
}

func list(all []string) string {
	if len(all) == 0 {
		return "[]"
	}
	return "['" + strings.Join(all, "', '") + "']"
}

// randomPattern returns a pattern that matches a name, "*", or the name itself.
func randomPattern(r *rand.Rand, name string) string {
	at := r.IntN(len(name))
	switch r.IntN(6) {
	case 0:
		return "*" + name[at:]
	case 1:
		return name[:at+1] + "*"
	case 2:
		return "*"
	}
	return name
}

func randomPrincipal(r *rand.Rand, pick func([]string) string) string {
	domain, account := pick(someDomains), pick(someAccounts)
	switch r.IntN(4) {
	case 0:
		return randomPattern(r, domain+account)
	case 1, 2:
		return randomPattern(r, domain) + account
	}
	return domain + account
}

// randomSource returns a rule with random fields of identities.
type randomSource struct{ principals, notPrincipals, domains, notDomains, when, notWhen []string }

func (s randomSource) matches(own []string, id string) bool {
	any := func(values []string, one func(own []string, v, id string) bool) bool {
		return slices.ContainsFunc(values, func(v string) bool { return one(own, v, id) })
	}
	principals := func(values []string) bool { return len(values) == 0 || any(values, means) }
	return principals(s.principals) && !any(s.notPrincipals, means) && principals(s.when) && !any(s.notWhen, means) &&
		(len(s.domains) == 0 || any(s.domains, meansDomain)) && !any(s.notDomains, meansDomain)
}

// like reports whether a text matches a pattern of Istio's policies.
func like(pattern, text string) bool {
	switch {
	case strings.HasPrefix(pattern, "*"):
		return strings.HasSuffix(text, pattern[1:])
	case strings.HasSuffix(pattern, "*"):
		return strings.HasPrefix(text, pattern[:len(pattern)-1])
	}
	return pattern == text
}

// means reports whether a principal in a policy matches an identity, in a mesh with some trust domains. A pattern may
// match the whole identity, and a principal in a domain of the mesh matches the same account in all of the domains.
func means(own []string, v, id string) bool {
	domain, account, _ := strings.Cut(v, "/")
	idDomain, idAccount, _ := strings.Cut(id, "/")
	ours := domain == "cluster.local"
	for _, one := range own {
		ours = ours || like(domain, one)
	}
	if strings.Count(v, "/") != 4 || domain == "*" || !ours {
		return like(v, id)
	}
	return slices.Contains(own, idDomain) && like(account, idAccount) || strings.HasPrefix(domain, "*") && like(v, id)
}

func meansDomain(own []string, v, id string) bool {
	domain, _, _ := strings.Cut(id, "/")
	return like(v, domain) || slices.Contains(own, v) && slices.Contains(own, domain)
}

// principalMatches evaluates a principal as Envoy does, for the forms that sources of identities are built to.
func principalMatches(p *rbacv3.Principal, id string) bool {
	one := func(p *rbacv3.Principal) bool { return principalMatches(p, id) }
	switch p := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return p.Any
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(p.AndIds.Ids, func(p *rbacv3.Principal) bool { return !one(p) })
	case *rbacv3.Principal_OrIds:
		return slices.ContainsFunc(p.OrIds.Ids, one)
	case *rbacv3.Principal_NotId:
		return !one(p.NotId)
	case *rbacv3.Principal_Authenticated_:
		switch m := p.Authenticated.GetPrincipalName().GetMatchPattern().(type) {
		case *matcherv3.StringMatcher_Exact:
			return m.Exact == id
		case *matcherv3.StringMatcher_Prefix:
			return strings.HasPrefix(id, m.Prefix)
		case *matcherv3.StringMatcher_SafeRegex:
			return regexp.MustCompile("^(?:" + m.SafeRegex.GetRegex() + ")$").MatchString(id)
		}
	}
	panic(fmt.Sprintf("no matcher of identities: %v", p))
}
