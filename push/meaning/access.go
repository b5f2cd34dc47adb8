package meaning

import (
	"maps"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// access holds the rules of AuthorizationPolicies that one port enforces, by rule name.
type access struct {
	allow, deny map[string]accessRule
	allows      bool // the port has an ALLOW filter
	closed      bool // the port refuses traffic because a policy cannot be enforced
}

// accessOf returns the rules of a group (the filter chains of one port). All chains of a port enforce the same
// policies, but only HTTP chains contain them in full. TCP chains are therefore read only if the group has no HTTP
// chain.
func accessOf(g group) access {
	a := access{allow: map[string]accessRule{}, deny: map[string]accessRule{}}
	http := false
	for _, c := range g.chains {
		http = http || c.http != nil
	}
	for _, c := range g.chains {
		for _, f := range c.filters {
			switch {
			case (c.http != nil) != http || f.policies == nil || f.policies.enforced == nil:
			case f.policies.closes():
				a.closed = true
			case f.policies.allows():
				a.allows = true
				maps.Copy(a.allow, f.policies.accessRules(g.port))
			case f.policies.enforced.GetAction() == rbacv3.RBAC_DENY:
				maps.Copy(a.deny, f.policies.accessRules(g.port))
			}
		}
	}
	return a
}

// accessRule is one rule with its terms, which express its principals and permissions. The terms are computed once,
// because they are compared with the terms of many other rules.
type accessRule struct {
	policy            *rbacv3.Policy
	callers, requests term
	conditional       bool   // the rule has a condition, which terms do not express
	sum               string // digest of the policy
}

// accessRules returns the enforced rules for a destination port, by name; 0: any port. The result is shared and
// read-only.
func (p *policies) accessRules(port uint32) map[string]accessRule {
	if rules := p.access[port]; rules != nil {
		return rules
	}
	rules := map[string]accessRule{}
	for name, of := range p.enforced.GetPolicies() {
		rules[name] = accessRule{of, principalsOf(of), permissionsOf(of, port), of.GetCondition() != nil || of.GetCheckedCondition() != nil,
			digest(of.ProtoReflect(), maxDepth)}
	}
	if p.access == nil {
		p.access = map[uint32]map[string]accessRule{}
	}
	p.access[port] = rules
	return rules
}

// access adds a risk if the policies of one port allow or deny other requests than before. It leaves two cases to other
// methods. The method allow assesses a first ALLOW filter, and the method closes assesses a closed port.
func (a *assessment) access(name string, inbound bool, old, new group) {
	was, is := accessOf(old), accessOf(new)
	if was.closed || is.closed {
		return
	}
	risk := func(code Code, level Level, rules []string, format string) {
		if len(rules) > 0 {
			a.add(code, level, xds.Listener, name, policySubject(name, inbound), policyObjects(rules), format, ruleList(rules))
		}
	}
	if more := a.beyond(is.deny, was.deny); slices.ContainsFunc(more, func(r string) bool { return is.deny[r].everything() }) {
		risk(AccessNarrows, High, more, "every request is denied (403), by DENY rule %s")
	} else {
		risk(AccessNarrows, Medium, more, "DENY rules refuse further requests (403): %s")
	}
	if less := a.beyond(was.deny, is.deny); slices.ContainsFunc(less, func(r string) bool { return was.deny[r].everything() }) {
		risk(AccessWidens, High, less, "a DENY rule that refused every request is gone or narrower: %s")
	} else {
		risk(AccessWidens, Medium, less, "DENY rules refuse fewer requests: %s")
	}
	switch more := a.beyond(is.allow, was.allow); {
	case !was.allows:
		return
	case !is.allows:
		risk(AccessWidens, High, slices.Sorted(maps.Keys(was.allow)),
			"no ALLOW policy is left, so all requests that no policy denies are allowed; gone: %s")
		return
	case slices.ContainsFunc(more, func(r string) bool { return is.allow[r].everything() }):
		risk(AccessWidens, High, more, "every request that no policy denies is allowed, by ALLOW rule %s")
	default:
		risk(AccessWidens, Medium, more, "ALLOW rules allow further requests: %s")
	}
	risk(AccessNarrows, Medium, a.beyond(was.allow, is.allow), "requests that ALLOW rules allowed may be denied (403): %s")
}

// nameless adds risks for a port that loses mTLS. Without mTLS, callers have no identity, and rules that require an
// identity never match.
func (a *assessment) nameless(name string, inbound bool, g group) {
	var allow, deny []string
	is, others := accessOf(g), 0
	for rule, r := range is.allow {
		switch {
		case r.callers.named():
			allow = append(allow, rule)
		case r.callers.op != never:
			others++
		}
	}
	for rule, r := range is.deny {
		if r.callers.named() {
			deny = append(deny, rule)
		}
	}
	subject := policySubject(name, inbound)
	switch {
	case len(allow) > 0 && others == 0:
		a.add(AccessNarrows, High, xds.Listener, name, subject, policyObjects(allow),
			"without mTLS callers have no identity, so ALLOW rules match no request, and every request is denied (403): %s",
			ruleList(allow))
	case len(allow) > 0:
		a.add(AccessNarrows, Medium, xds.Listener, name, subject, policyObjects(allow),
			"without mTLS callers have no identity, so these ALLOW rules match no request: %s", ruleList(allow))
	}
	if len(deny) > 0 {
		a.add(AccessWidens, High, xds.Listener, name, subject, policyObjects(deny),
			"without mTLS callers have no identity, so these DENY rules match no request: %s", ruleList(deny))
	}
}

// ruleList returns the names of rules as one text, sorted.
func ruleList(rules []string) string {
	var all []string
	for _, name := range rules {
		all = append(all, policyText(name))
	}
	slices.Sort(all)
	return list(all)
}

// beyond returns the names of the rules in a that no single rule in b is known to cover. The names are sorted. Rules
// that match nothing count as covered. A rule that is also in b, even under another name, costs only a look-up.
// m.budget limits the other comparisons.
func (m *memo) beyond(a, b map[string]accessRule) (names []string) {
	same := map[string]bool{}
	for _, r := range b {
		same[r.sum] = same[r.sum] || !r.conditional
	}
	others := slices.Sorted(maps.Keys(b))
	for _, name := range slices.Sorted(maps.Keys(a)) {
		r := a[name]
		known := r.callers.op == never || r.requests.op == never || same[r.sum] ||
			slices.ContainsFunc(others, func(other string) bool { return b[other].covers(r, m.budget) })
		if !known {
			names = append(names, name)
		}
	}
	return names
}

// covers reports whether r is known to match all requests that the rule other matches.
func (r accessRule) covers(other accessRule, steps *budget) bool {
	if !steps.spend() || r.conditional && !proto.Equal(r.policy, other.policy) {
		return false
	}
	return r.callers.covers(other.callers, steps) && r.requests.covers(other.requests, steps)
}

// everything reports whether a rule is known to match all requests.
func (r accessRule) everything() bool {
	return !r.conditional && r.callers.op == anything && r.requests.op == anything
}

// The operators of a term.
const (
	leaf     = ""
	anything = "any"
	never    = "never"
	both     = "and"
	either   = "or"
	negation = "not"
)

// term is a logical expression of RBAC principals, or of RBAC permissions.
type term struct {
	op       string
	parts    []term // operands of both, either and negation
	text     string // of a leaf: the digest of its principal or permission
	identity bool   // of a leaf: it matches only callers with a certificate
}

// joined combines the given terms by the operator op, which is "and" or "or". It omits terms that have no effect. It
// overwrites the array of the slice parts.
func joined(op string, parts []term) term {
	decides, neutral := never, anything
	if op == either {
		decides, neutral = anything, never
	}
	kept := parts[:0]
	for _, p := range parts {
		if p.op == decides {
			return term{op: decides}
		}
		if p.op != neutral {
			kept = append(kept, p)
		}
	}
	switch len(kept) {
	case 0:
		return term{op: neutral}
	case 1:
		return kept[0]
	}
	return term{op: op, parts: kept}
}

// negated returns the negation of a term.
func negated(t term) term {
	switch t.op {
	case anything:
		return term{op: never}
	case never:
		return term{op: anything}
	}
	return term{op: negation, parts: []term{t}}
}

// terms applies a function to each element of a list, and returns the resulting terms.
func terms[P any](all []P, of func(P) term) (parts []term) {
	for _, p := range all {
		parts = append(parts, of(p))
	}
	return parts
}

// principalsOf returns the term for the callers that a rule matches.
func principalsOf(p *rbacv3.Policy) term {
	return joined(either, terms(p.GetPrincipals(), principalTerm))
}

// permissionsOf returns the term for the requests to a destination port that a rule matches. The port 0 stands for any
// port.
func permissionsOf(p *rbacv3.Policy, port uint32) term {
	return joined(either, terms(p.GetPermissions(), permissionTerms(port)))
}

// principalTerm returns the term of a principal.
func principalTerm(p *rbacv3.Principal) term {
	switch of := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return term{op: anything}
	case *rbacv3.Principal_AndIds:
		return joined(both, terms(of.AndIds.GetIds(), principalTerm))
	case *rbacv3.Principal_OrIds:
		return joined(either, terms(of.OrIds.GetIds(), principalTerm))
	case *rbacv3.Principal_NotId:
		return negated(principalTerm(of.NotId))
	}
	return term{text: digest(p.ProtoReflect(), maxDepth), identity: p.GetAuthenticated() != nil}
}

// permissionTerms returns a function that returns the term of a permission for requests to a destination port. A
// permission for another port matches none of them. The port 0 stands for any port.
func permissionTerms(port uint32) func(*rbacv3.Permission) term {
	var termOf func(*rbacv3.Permission) term
	termOf = func(p *rbacv3.Permission) term {
		switch of := p.GetRule().(type) {
		case *rbacv3.Permission_Any:
			return term{op: anything}
		case *rbacv3.Permission_AndRules:
			return joined(both, terms(of.AndRules.GetRules(), termOf))
		case *rbacv3.Permission_OrRules:
			return joined(either, terms(of.OrRules.GetRules(), termOf))
		case *rbacv3.Permission_NotRule:
			return negated(termOf(of.NotRule))
		case *rbacv3.Permission_DestinationPort:
			if port != 0 && of.DestinationPort != port {
				return term{op: never}
			}
		}
		return term{text: digest(p.ProtoReflect(), maxDepth)}
	}
	return termOf
}

// covers reports whether t is known to match everything that the term other matches. It returns false when the budget
// is spent.
func (t term) covers(other term, steps *budget) bool {
	if !steps.spend() {
		return false
	}
	by := func(p term) bool { return t.covers(p, steps) }
	switch {
	case t.op == anything || other.op == never:
		return true
	case other.op == either:
		return !slices.ContainsFunc(other.parts, func(p term) bool { return !by(p) })
	case t.op == both:
		return !slices.ContainsFunc(t.parts, func(p term) bool { return !p.covers(other, steps) })
	case t.op == either && slices.ContainsFunc(t.parts, func(p term) bool { return p.covers(other, steps) }):
		return true
	case other.op == both:
		return slices.ContainsFunc(other.parts, by)
	case t.op == negation && other.op == negation:
		return other.parts[0].covers(t.parts[0], steps)
	}
	return t.op == leaf && other.op == leaf && t.text == other.text
}

// named reports whether a term of principals is known to match only callers with a certificate.
func (t term) named() bool {
	switch t.op {
	case leaf:
		return t.identity
	case both:
		return slices.ContainsFunc(t.parts, term.named)
	case either:
		return !slices.ContainsFunc(t.parts, func(p term) bool { return !p.named() })
	}
	return false
}
