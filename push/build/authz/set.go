package authz

import (
	"fmt"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	meshv1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/store/model"
)

// Set holds the RBAC rules of all policies of a workload. Envoy evaluates them in this order, by Istio's semantics
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/):
//
//  1. A request that a CUSTOM policy matches needs the permission of the policy's provider.
//  2. A request that an AUDIT policy matches is marked.
//  3. A request that a DENY policy matches is refused.
//  4. If there is an ALLOW policy, a request that no ALLOW policy matches is refused.
//
// Policies in dry runs refuse nothing. Their rules are in the field Shadow of the filters Audit, Deny and Allow.
type Set struct {
	Custom             []Custom // one for each provider, sorted by provider; nil: no CUSTOM policy with rules
	Audit, Deny, Allow *Filter  // nil: no policy of this action has an effect
}

// Filter holds the rules of one RBAC filter. Rules has the enforced rules. It is nil if no policy is enforced. Shadow
// has the rules of policies in dry runs, whose matches Envoy only counts. It is nil if there are no dry runs. At least
// one of the two fields is not nil.
type Filter struct{ Rules, Shadow *rbacv3.RBAC }

// Custom holds the rules of all CUSTOM policies that name one provider. A request that one of the rules matches needs
// the permission of the provider.
type Custom struct {
	Provider string // name of the extension provider
	// Rules have the action DENY, but are for use as shadow rules, which refuse nothing. Rules is not nil, but may
	// contain no rule.
	Rules *rbacv3.RBAC
}

// CustomPrefix returns the prefix of all rule names in the Custom.Rules of a provider.
func CustomPrefix(provider string) string { return "istio-ext-authz-" + provider + "-" }

// actions maps Istio's actions to Envoy's; dryRuns maps the actions of policies in dry runs.
var (
	actions = map[securityv1.AuthorizationPolicy_Action]rbacv3.RBAC_Action{
		securityv1.AuthorizationPolicy_ALLOW:  rbacv3.RBAC_ALLOW,
		securityv1.AuthorizationPolicy_DENY:   rbacv3.RBAC_DENY,
		securityv1.AuthorizationPolicy_AUDIT:  rbacv3.RBAC_LOG,
		securityv1.AuthorizationPolicy_CUSTOM: rbacv3.RBAC_DENY, // used as shadow rules, which refuse nothing
	}
	dryRuns = map[model.DryRun]rbacv3.RBAC_Action{
		model.DryRun_DRY_RUN_ALLOW: rbacv3.RBAC_ALLOW,
		model.DryRun_DRY_RUN_DENY:  rbacv3.RBAC_DENY,
		model.DryRun_DRY_RUN_AUDIT: rbacv3.RBAC_LOG,
	}
)

// Traffic is the kind of traffic to which rules are applied.
type Traffic uint8

// The kinds of traffic.
const (
	Connections     Traffic = iota // connections of other protocols than HTTP
	Requests                       // HTTP requests at a workload
	GatewayRequests                // HTTP requests at a gateway, where the host decides the route
)

// Build returns the rules of policies for a kind of traffic. The result is never nil, and the caller owns it. From
// mesh, which may be nil, Build reads the trust domain and its aliases. It leaves out policies with an unknown action,
// and policies without rules unless their action is ALLOW.
//
// For Connections, Build ignores fields of HTTP in rules of all actions except ALLOW. In an ALLOW rule, a source or an
// operation with such fields matches nothing and is left out. A rule with such a condition, or without a remaining
// source or operation, is left out too. For all traffic, ALLOW rules with an unknown condition are left out.
//
// If all rules of an enforced ALLOW policy are left out, the Filter Allow still exists. It then refuses requests that
// no other ALLOW policy matches.
func Build(policies []*model.Policy, mesh *meshv1.MeshConfig, of Traffic) *Set {
	s, domains := &Set{}, identity.TrustDomains(mesh)
	for _, p := range policies {
		m := model.Authorization(p)
		into := s.rulesFor(p, m)
		if into == nil {
			continue
		}
		prefix := ""
		if m.GetAction() == securityv1.AuthorizationPolicy_CUSTOM {
			prefix = CustomPrefix(m.GetProvider().GetName())
		}
		d := ruleBuilder{domains: domains, namespace: p.Key.Namespace, http: of != Connections, gateway: of == GatewayRequests,
			lenient: into.Action != rbacv3.RBAC_ALLOW}
		if len(m.GetRules()) == 0 {
			into.Policies[fmt.Sprintf("ns[%s]-policy[%s]-rule[0]", p.Key.Namespace, p.Key.Name)] = never()
		}
		for i, rule := range m.GetRules() {
			if built := d.rule(rule); built != nil {
				into.Policies[fmt.Sprintf("%sns[%s]-policy[%s]-rule[%d]", prefix, p.Key.Namespace, p.Key.Name, i)] = built
			}
		}
	}
	slices.SortFunc(s.Custom, func(a, b Custom) int { return strings.Compare(a.Provider, b.Provider) })
	return s
}

// Rules returns the enforced rules of the DENY policies and of the ALLOW policies. A result is nil if no policy of its
// action is enforced. The results are parts of s.
func (s *Set) Rules() (deny, allow *rbacv3.RBAC) {
	if s.Deny != nil {
		deny = s.Deny.Rules
	}
	if s.Allow != nil {
		allow = s.Allow.Rules
	}
	return deny, allow
}

// rulesFor returns the RBAC rules of s to which a policy's rules must be added, and creates them if they are missing.
// It returns nil if the policy has no effect: its action is unknown, or it has no rules and its action is not ALLOW.
func (s *Set) rulesFor(p *model.Policy, m *securityv1.AuthorizationPolicy) *rbacv3.RBAC {
	action, known := actions[m.GetAction()]
	dry, isDry := dryRuns[p.Spec.GetDryRun()]
	if isDry {
		action = dry
	}
	if !known || len(m.GetRules()) == 0 && action != rbacv3.RBAC_ALLOW {
		return nil
	}
	if m.GetAction() == securityv1.AuthorizationPolicy_CUSTOM {
		return s.customRules(m.GetProvider().GetName())
	}
	filters := map[rbacv3.RBAC_Action]**Filter{rbacv3.RBAC_ALLOW: &s.Allow, rbacv3.RBAC_DENY: &s.Deny, rbacv3.RBAC_LOG: &s.Audit}
	at := filters[action]
	if *at == nil {
		*at = &Filter{}
	}
	rules := &(*at).Rules
	if isDry {
		rules = &(*at).Shadow
	}
	if *rules == nil {
		*rules = &rbacv3.RBAC{Action: action, Policies: map[string]*rbacv3.Policy{}}
	}
	return *rules
}

// customRules returns the rules of a provider in s, and creates them if they are missing.
func (s *Set) customRules(provider string) *rbacv3.RBAC {
	for _, c := range s.Custom {
		if c.Provider == provider {
			return c.Rules
		}
	}
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	s.Custom = append(s.Custom, Custom{provider, rules})
	return rules
}

// Refused returns RBAC rules that refuse the requests that c's rules match. The caller enforces them instead of c.Rules
// if the provider cannot be used. The result is not nil, and it refers to the rules in c.
func (c Custom) Refused() *rbacv3.RBAC {
	refused := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for name, rule := range c.Rules.GetPolicies() {
		refused.Policies[name+"-deny-due-to-bad-CUSTOM-action"] = rule
	}
	return refused
}
