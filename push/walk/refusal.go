package walk

import (
	"regexp"
	"slices"
	"strings"
)

// Refusal is the decision of an RBAC filter that refused a request. A rule has the form
// ns[NAMESPACE]-policy[NAME]-rule[INDEX]. For a CUSTOM policy, other text stands before and after it.
type Refusal struct {
	By string   // the rule that denies the request; empty if no rule denies it
	Of []string // the filter's ALLOW rules, if no rule matches; if By and Of are empty, a policy could not be enforced
	// Closing lists the policies that could not be enforced, as "Kind namespace/name". It is nil if they are not known,
	// and if By or Of is set.
	Closing []string
}

// Policed is a Held (the configuration of one proxy) that also knows which policies select the proxy and cannot be
// enforced. Such a policy makes the proxy refuse all requests.
type Policed interface {
	Held
	// Closing returns the policies, as "Kind namespace/name". The result is read-only.
	Closing() []string
}

// closing returns the policies that select the proxy and cannot be enforced, or nil if they are not known.
func closing(held Held) []string {
	if of, is := held.(Policed); is {
		return of.Closing()
	}
	return nil
}

// String returns a clause that names the AuthorizationPolicies of the rules.
func (r Refusal) String() string {
	switch {
	case r.By != "":
		return "denied by " + RuleText(r.By)
	case len(r.Closing) > 0:
		return strings.Join(r.Closing, ", ") + " cannot be enforced, so all requests are refused"
	case len(r.Of) == 0:
		return "a policy could not be enforced, so all requests are refused"
	}
	var names []string
	for _, rule := range r.Of {
		if name := objectOf(rule); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return "no rule of " + strings.Join(names, ", ") + " allows it"
}

// ruleName matches the name of a rule (push/build/authz). Its parts are the provider of a CUSTOM policy, the namespace,
// the name of the policy, the index of the rule, and the suffix of a rule whose provider cannot be used.
var ruleName = regexp.MustCompile(`^(?:istio-ext-authz-(.*)-)?` +
	`ns\[([^\]]*)\]-policy\[([^\]]*)\]-rule\[(\d+)\](-deny-due-to-bad-CUSTOM-action)?$`)

// objectOf returns the object of a rule as "AuthorizationPolicy namespace/name". It returns a name of another form
// unchanged.
func objectOf(rule string) string {
	if m := ruleName.FindStringSubmatch(rule); m != nil {
		return "AuthorizationPolicy " + m[2] + "/" + m[3]
	}
	return rule
}

// RuleText describes a rule by its name in Envoy: the AuthorizationPolicy, the field with the rule, and the provider of
// a CUSTOM policy. It returns a name of another form unchanged.
func RuleText(rule string) string {
	m := ruleName.FindStringSubmatch(rule)
	if m == nil {
		return rule
	}
	text := objectOf(rule) + " spec.rules[" + m[4] + "]"
	switch {
	case m[5] != "":
		return text + ", whose provider " + m[1] + " cannot be used"
	case m[1] != "":
		return text + ", by provider " + m[1]
	}
	return text
}
