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

// Set holds the rules of all policies of a workload, by Istio's semantics
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/). They are evaluated in this order. A
// request that a CUSTOM policy matches needs the permission of its provider. A request that an AUDIT policy matches is
// marked. A request that a DENY policy matches is refused. If there is an ALLOW policy, a request that no ALLOW policy
// matches is refused. On a connection that is not HTTP, fields of HTTP match nothing in an ALLOW policy and everything
// in another.
type Set struct {
	Custom             []Custom // sorted by provider
	Audit, Deny, Allow *Filter  // nil: no policy of this action
}

// Filter holds the rules of one RBAC filter. Rules are enforced. Shadow has the rules of dry runs, which are only
// counted. At least one of them is not nil.
type Filter struct{ Rules, Shadow *rbacv3.RBAC }

// Custom holds the rules of all CUSTOM policies with one provider. A request that one of them matches needs the
// permission of the provider.
type Custom struct {
	Provider string
	Rules    *rbacv3.RBAC
}

// CustomPrefix returns the prefix of the names of a provider's rules in Custom.Rules.
func CustomPrefix(provider string) string { return "istio-ext-authz-" + provider + "-" }

// actions maps Istio's actions to Envoy's, and dryRuns those of dry runs.
var (
	actions = map[securityv1.AuthorizationPolicy_Action]rbacv3.RBAC_Action{
		securityv1.AuthorizationPolicy_ALLOW:  rbacv3.RBAC_ALLOW,
		securityv1.AuthorizationPolicy_DENY:   rbacv3.RBAC_DENY,
		securityv1.AuthorizationPolicy_AUDIT:  rbacv3.RBAC_LOG,
		securityv1.AuthorizationPolicy_CUSTOM: rbacv3.RBAC_DENY, // as shadow rules, which refuse nothing
	}
	dryRuns = map[model.DryRun]rbacv3.RBAC_Action{
		model.DryRun_DRY_RUN_ALLOW: rbacv3.RBAC_ALLOW,
		model.DryRun_DRY_RUN_DENY:  rbacv3.RBAC_DENY,
		model.DryRun_DRY_RUN_AUDIT: rbacv3.RBAC_LOG,
	}
)

// Traffic is the kind of traffic that rules decide about.
type Traffic uint8

// The kinds of traffic.
const (
	Connections     Traffic = iota // that are not HTTP
	Requests                       // at a workload
	GatewayRequests                // at a gateway, where the host decides the route
)

// Build builds the rules of policies for a kind of traffic. Only the trust domains of mesh are read. Policies with an
// unknown action are ignored.
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

// Rules returns the enforced rules that refuse requests: of DENY and of ALLOW policies; nil without such policies.
func (s *Set) Rules() (deny, allow *rbacv3.RBAC) {
	if s.Deny != nil {
		deny = s.Deny.Rules
	}
	if s.Allow != nil {
		allow = s.Allow.Rules
	}
	return deny, allow
}

// rulesFor returns the RBAC rules to which the rules of a policy belong. It returns nil if the policy has no effect: it
// has no rules and is not ALLOW, or its action is of a newer version.
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

// customRules returns the rules of a provider, which it adds to s if they are missing.
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

// Refused returns rules that refuse every request that the rules of c match, for a provider that cannot be reached or
// used.
func (c Custom) Refused() *rbacv3.RBAC {
	refused := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for name, rule := range c.Rules.GetPolicies() {
		refused.Policies[name+"-deny-due-to-bad-CUSTOM-action"] = rule
	}
	return refused
}
