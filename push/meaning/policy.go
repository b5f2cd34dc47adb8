package meaning

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
)

// policies is the model of an RBAC filter. A rule is a named entry of RBAC.policies.
type policies struct {
	enforced, dryRun *rbacv3.RBAC                     // nil if the filter has no such rules
	rest             proto.Message                    // the other settings of the filter
	access           map[uint32]map[string]accessRule // results of accessRules, by port
}

// policiesOf returns the model of an RBAC filter. For other filters it returns nil.
func policiesOf(config proto.Message) *policies {
	switch m := config.(type) {
	case *httprbacv3.RBAC:
		p := &policies{enforced: m.GetRules(), dryRun: m.GetShadowRules()}
		m = proto.CloneOf(m)
		m.Rules, m.ShadowRules = nil, nil
		p.rest = m
		return p
	case *tcprbacv3.RBAC:
		p := &policies{enforced: m.GetRules(), dryRun: m.GetShadowRules()}
		m = proto.CloneOf(m)
		m.Rules, m.ShadowRules = nil, nil
		p.rest = m
		return p
	}
	return nil
}

// rules returns the names of all rules, sorted. For a nil p it returns nil.
func (p *policies) rules() []string {
	if p == nil {
		return nil
	}
	return bothKeys(p.enforced.GetPolicies(), p.dryRun.GetPolicies())
}

// purpose returns a name for the filter. The name is the action of the enforced rules. If there are no enforced rules,
// it is "CUSTOM" or "dry run of ACTION".
func (p *policies) purpose() string {
	switch {
	case p.enforced != nil:
		return p.enforced.GetAction().String()
	case p.custom():
		return "CUSTOM"
	}
	return "dry run of " + p.dryRun.GetAction().String()
}

// custom reports whether the filter selects requests for an external authorizer (CUSTOM policies).
func (p *policies) custom() bool {
	for name := range p.dryRun.GetPolicies() {
		return strings.HasPrefix(name, "istio-ext-authz-")
	}
	return false
}

// unenforceable is a suffix of names of rules. A rule whose name has this suffix replaces a CUSTOM policy whose
// provider cannot be used.
const unenforceable = "-deny-due-to-bad-CUSTOM-action"

// closes reports whether the filter refuses traffic because a policy cannot be enforced. Two kinds of filters do so: an
// ALLOW filter without rules, and a filter with a rule that unenforced returns.
func (p *policies) closes() bool {
	if p == nil || p.enforced == nil {
		return false
	}
	return len(p.unenforced()) > 0 || p.enforced.GetAction() == rbacv3.RBAC_ALLOW && len(p.enforced.GetPolicies()) == 0
}

// unenforced returns the names of the rules that replace a CUSTOM policy whose provider cannot be used.
func (p *policies) unenforced() (names []string) {
	for name := range p.enforced.GetPolicies() {
		if strings.HasSuffix(name, unenforceable) {
			names = append(names, name)
		}
	}
	return names
}

// allows reports whether the filter is an enforced ALLOW filter, which refuses all requests that no rule allows.
func (p *policies) allows() bool {
	return p != nil && p.enforced != nil && p.enforced.GetAction() == rbacv3.RBAC_ALLOW
}

// ruleName finds the namespace, policy and number in the name of a rule.
var ruleName = regexp.MustCompile(`ns\[(.*)\]-policy\[(.*)\]-rule\[(\d+)\]`)

// policyObjects returns the AuthorizationPolicies to which rules with the given names belong, sorted.
func policyObjects(rules []string) (objects []string) {
	for _, name := range rules {
		if m := ruleName.FindStringSubmatch(name); m != nil {
			objects = append(objects, "AuthorizationPolicy "+m[1]+"/"+m[2])
		}
	}
	slices.Sort(objects)
	return slices.Compact(objects)
}

// policyText returns the name of a rule as "namespace/name rule N". It returns names of another form unchanged.
func policyText(name string) string {
	if m := ruleName.FindStringSubmatch(name); m != nil {
		return fmt.Sprintf("%s/%s rule %s", m[1], m[2], m[3])
	}
	return name
}

// policyFacts compares two RBAC filters. The value nil stands for a missing filter. The facts have no Subject. If tcp
// is true, the filters are network filters, which decide about connections.
func policyFacts(old, new *policies, tcp bool) (all []Fact) {
	if old == nil {
		old = &policies{}
	}
	if new == nil {
		new = &policies{}
	}
	traffic := ""
	if tcp {
		traffic = " (connections)"
	}
	for _, sets := range []struct {
		old, new *rbacv3.RBAC
		word     string
	}{{old.enforced, new.enforced, ""}, {old.dryRun, new.dryRun, " (not enforced)"}} {
		action := sets.new.GetAction()
		if sets.new == nil {
			action = sets.old.GetAction()
		}
		for _, name := range bothKeys(sets.old.GetPolicies(), sets.new.GetPolicies()) {
			a, b := sets.old.GetPolicies()[name], sets.new.GetPolicies()[name]
			var c change
			switch {
			case a == nil:
				c = append(c, "new: "+grantText(b))
			case b == nil:
				c = append(c, "gone: "+grantText(a))
			case !same(a, b):
				if c.compare("", grantText(a), grantText(b)); len(c) == 0 {
					c.others(a, b)
				}
			}
			if len(c) > 0 {
				all = append(all, Fact{Area: Policies, Aspect: action.String() + " " + policyText(name) + sets.word + traffic, Text: c.String()})
			}
		}
		var c change
		if sets.old != nil && sets.new != nil {
			c.others(withoutPolicies(sets.old), withoutPolicies(sets.new))
		}
		if len(c) > 0 {
			all = append(all, Fact{Area: Policies, Aspect: "rules" + sets.word + traffic, Text: c.String()})
		}
	}
	if old.rest != nil && new.rest != nil && old.rest.ProtoReflect().Descriptor() == new.rest.ProtoReflect().Descriptor() {
		var c change
		if c.others(old.rest, new.rest); len(c) > 0 {
			all = append(all, Fact{Area: Policies, Aspect: "filter" + traffic, Text: c.String()})
		}
	}
	return all
}

// withoutPolicies returns a copy of r without its policies.
func withoutPolicies(r *rbacv3.RBAC) *rbacv3.RBAC {
	r = proto.CloneOf(r)
	r.Policies = nil
	return r
}

// grantText describes the requests that a policy matches, by their callers and their properties.
func grantText(p *rbacv3.Policy) string {
	from, to := make([]string, 0, len(p.GetPrincipals())), make([]string, 0, len(p.GetPermissions()))
	for _, one := range p.GetPrincipals() {
		from = append(from, principalText(one))
	}
	for _, one := range p.GetPermissions() {
		to = append(to, permissionText(one))
	}
	slices.Sort(from)
	slices.Sort(to)
	text := "from " + list(from) + " to " + list(to)
	if p.GetCondition() != nil {
		text += " if " + brief(p.GetCondition())
	}
	return text
}

// principalText describes the callers that a principal matches.
func principalText(p *rbacv3.Principal) string {
	switch p := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return "anyone"
	case *rbacv3.Principal_AndIds:
		return allText(p.AndIds.GetIds(), principalText, " and ")
	case *rbacv3.Principal_OrIds:
		return allText(p.OrIds.GetIds(), principalText, " or ")
	case *rbacv3.Principal_NotId:
		if p.NotId.GetAny() {
			return "no one"
		}
		return "not " + principalText(p.NotId)
	case *rbacv3.Principal_Authenticated_:
		return matcherText(p.Authenticated.GetPrincipalName())
	case *rbacv3.Principal_DirectRemoteIp:
		return "address " + p.DirectRemoteIp.GetAddressPrefix() + "/" + strconv.Itoa(int(p.DirectRemoteIp.GetPrefixLen().GetValue()))
	case *rbacv3.Principal_RemoteIp:
		return "client " + p.RemoteIp.GetAddressPrefix() + "/" + strconv.Itoa(int(p.RemoteIp.GetPrefixLen().GetValue()))
	case *rbacv3.Principal_Header:
		return "header " + headerText(p.Header)
	}
	return brief(p)
}

// permissionText describes the requests that a permission matches.
func permissionText(p *rbacv3.Permission) string {
	switch p := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return "anything"
	case *rbacv3.Permission_AndRules:
		return allText(p.AndRules.GetRules(), permissionText, " and ")
	case *rbacv3.Permission_OrRules:
		return allText(p.OrRules.GetRules(), permissionText, " or ")
	case *rbacv3.Permission_NotRule:
		if p.NotRule.GetAny() {
			return "nothing"
		}
		return "not " + permissionText(p.NotRule)
	case *rbacv3.Permission_DestinationPort:
		return "port " + strconv.Itoa(int(p.DestinationPort))
	case *rbacv3.Permission_DestinationIp:
		return "address " + p.DestinationIp.GetAddressPrefix() + "/" + strconv.Itoa(int(p.DestinationIp.GetPrefixLen().GetValue()))
	case *rbacv3.Permission_UrlPath:
		return "path " + matcherText(p.UrlPath.GetPath())
	case *rbacv3.Permission_Header:
		return headerText(p.Header)
	}
	return brief(p)
}

// allText joins the texts of several conditions in parentheses. A single condition gets no parentheses.
func allText[M any](all []M, text func(M) string, word string) string {
	texts := make([]string, 0, len(all))
	for _, one := range all {
		texts = append(texts, text(one))
	}
	if len(texts) == 1 {
		return texts[0]
	}
	slices.Sort(texts)
	return "(" + strings.Join(texts, word) + ")"
}
