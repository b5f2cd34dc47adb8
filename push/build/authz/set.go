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

// Set is what policies demand together, by Istio's rules
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/), in the order in which it is asked: what a CUSTOM policy matches is for
// its provider to allow; what an AUDIT policy matches is marked; what a DENY policy matches is refused; then, where there is an ALLOW policy, what
// none of them matches. Nil: nothing of the kind. HTTP-only fields of a connection that is not HTTP match nothing in an ALLOW policy, and
// everything in another.
type Set struct {
	Custom             []Custom // sorted by provider
	Audit, Deny, Allow *Filter
}

// Filter is the rules of one RBAC filter: those that are enforced, and those of dry runs, which are counted; not both are nil.
type Filter struct{ Rules, Shadow *rbacv3.RBAC }

// Custom is the rules of all CUSTOM policies that name one provider: what one of them matches is for the provider to allow.
type Custom struct {
	Provider string
	Rules    *rbacv3.RBAC
}

// CustomPrefix is what the names of CustomPolicy's rules begin with, in the set of one provider.
func CustomPrefix(provider string) string { return "istio-ext-authz-" + provider + "-" }

// actions are Envoy's actions of Istio's; of dry runs, what they would be.
var (
	actions = map[securityv1.AuthorizationPolicy_Action]rbacv3.RBAC_Action{
		securityv1.AuthorizationPolicy_ALLOW: rbacv3.RBAC_ALLOW, securityv1.AuthorizationPolicy_DENY: rbacv3.RBAC_DENY, securityv1.AuthorizationPolicy_AUDIT: rbacv3.RBAC_LOG,
		securityv1.AuthorizationPolicy_CUSTOM: rbacv3.RBAC_DENY, // asked of a filter that refuses nothing
	}
	dryRuns = map[model.DryRun]rbacv3.RBAC_Action{
		model.DryRun_DRY_RUN_ALLOW: rbacv3.RBAC_ALLOW, model.DryRun_DRY_RUN_DENY: rbacv3.RBAC_DENY, model.DryRun_DRY_RUN_AUDIT: rbacv3.RBAC_LOG,
	}
)

// Draw draws policies for HTTP, or for other connections.
func Draw(policies []*model.Policy, mesh *meshv1.MeshConfig, http bool) *Set {
	s, domains := &Set{}, identity.TrustDomains(mesh)
	for _, p := range policies {
		m := model.Authorization(p)
		into := s.into(p, m)
		if into == nil {
			continue
		}
		prefix := ""
		if m.GetAction() == securityv1.AuthorizationPolicy_CUSTOM {
			prefix = CustomPrefix(m.GetProvider().GetName())
		}
		d := drawing{domains: domains, namespace: p.Key.Namespace, http: http, wide: into.Action != rbacv3.RBAC_ALLOW}
		if len(m.GetRules()) == 0 {
			into.Policies[fmt.Sprintf("ns[%s]-policy[%s]-rule[0]", p.Key.Namespace, p.Key.Name)] = never()
		}
		for i, rule := range m.GetRules() {
			if drawn := d.rule(rule); drawn != nil {
				into.Policies[fmt.Sprintf("%sns[%s]-policy[%s]-rule[%d]", prefix, p.Key.Namespace, p.Key.Name, i)] = drawn
			}
		}
	}
	slices.SortFunc(s.Custom, func(a, b Custom) int { return strings.Compare(a.Provider, b.Provider) })
	return s
}

// Rules are the rules of Draw that refuse by themselves.
func (s *Set) Rules() (deny, allow *rbacv3.RBAC) {
	if s.Deny != nil {
		deny = s.Deny.Rules
	}
	if s.Allow != nil {
		allow = s.Allow.Rules
	}
	return deny, allow
}

// into is where the rules of a policy belong; nil: it has none, or its action is a newer version's.
func (s *Set) into(p *model.Policy, m *securityv1.AuthorizationPolicy) *rbacv3.RBAC {
	action, known := actions[m.GetAction()]
	dry, isDry := dryRuns[p.Spec.GetDryRun()]
	if isDry {
		action = dry
	}
	if !known || len(m.GetRules()) == 0 && action != rbacv3.RBAC_ALLOW {
		return nil
	}
	if m.GetAction() == securityv1.AuthorizationPolicy_CUSTOM {
		return s.custom(m.GetProvider().GetName())
	}
	at := map[rbacv3.RBAC_Action]**Filter{rbacv3.RBAC_ALLOW: &s.Allow, rbacv3.RBAC_DENY: &s.Deny, rbacv3.RBAC_LOG: &s.Audit}[action]
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

func (s *Set) custom(provider string) *rbacv3.RBAC {
	for _, c := range s.Custom {
		if c.Provider == provider {
			return c.Rules
		}
	}
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	s.Custom = append(s.Custom, Custom{provider, rules})
	return rules
}

// Refused is the rules of a provider that cannot be asked: what they match is refused.
func (c Custom) Refused() *rbacv3.RBAC {
	refused := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for name, rule := range c.Rules.GetPolicies() {
		refused.Policies[name+"-deny-due-to-bad-CUSTOM-action"] = rule
	}
	return refused
}
