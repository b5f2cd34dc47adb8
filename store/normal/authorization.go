package normal

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// whenKeys are the keys of `when` that this version enforces, in addition to request.headers[name],
// request.auth.claims[name] and metadataKey (https://istio.io/latest/docs/reference/config/security/conditions/).
var whenKeys = []string{"source.ip", "remote.ip", "source.namespace", "source.principal", "source.serviceAccount",
	"source.trustDomain", "destination.ip", "destination.port", "connection.sni", "request.auth.principal", "request.auth.audiences",
	"request.auth.presenter"}

// metadataKey matches experimental.envoy.filters.a.b[c]: dynamic metadata that another filter of Envoy wrote.
var metadataKey = regexp.MustCompile(`^experimental\.envoy\.filters\.[^\[\]]+\[[^\]]+\]$`)

// authorization validates the rules of an AuthorizationPolicy. The parameter action is the action that the object
// states, even if the policy is a dry run.
func (r *report) authorization(p *securityv1.AuthorizationPolicy, action securityv1.AuthorizationPolicy_Action) {
	for i, rule := range p.Rules {
		at := fmt.Sprintf("spec.rules[%d]", i)
		for j, from := range rule.GetFrom() {
			r.source(fmt.Sprintf("%s.from[%d].source", at, j), from.GetSource())
		}
		for j, to := range rule.GetTo() {
			r.operation(fmt.Sprintf("%s.to[%d].operation", at, j), to.GetOperation())
		}
		for j, c := range rule.GetWhen() {
			r.condition(fmt.Sprintf("%s.when[%d]", at, j), c)
		}
	}
	if action == securityv1.AuthorizationPolicy_DENY {
		r.deny(p.Rules)
	}
	custom := action == securityv1.AuthorizationPolicy_CUSTOM
	if custom && p.GetProvider().GetName() == "" || !custom && p.GetProvider() != nil {
		r.refusef(problem.Invalid, "spec.provider", "goes with action CUSTOM, and only with that")
	}
	if custom {
		r.custom(p)
	}
}

// source validates one source of a rule.
func (r *report) source(at string, s *securityv1.Source) {
	addresses := []list{{"ipBlocks", s.GetIpBlocks()}, {"notIpBlocks", s.GetNotIpBlocks()}, {"remoteIpBlocks", s.GetRemoteIpBlocks()},
		{"notRemoteIpBlocks", s.GetNotRemoteIpBlocks()}}
	identities := []list{{"principals", s.GetPrincipals()}, {"notPrincipals", s.GetNotPrincipals()}, {"trustDomains", s.GetTrustDomains()},
		{"notTrustDomains", s.GetNotTrustDomains()}}
	accounts := []list{{"serviceAccounts", s.GetServiceAccounts()}, {"notServiceAccounts", s.GetNotServiceAccounts()}}
	tokens := []list{{"requestPrincipals", s.GetRequestPrincipals()}, {"notRequestPrincipals", s.GetNotRequestPrincipals()}}
	namespaces := []list{{"namespaces", s.GetNamespaces()}, {"notNamespaces", s.GetNotNamespaces()}}
	for _, of := range addresses {
		r.each(at+"."+of.field, of.values, ipBlock)
	}
	r.schemes(at, slices.Concat(identities, accounts))
	r.stars(at, slices.Concat(identities, tokens))
	r.noWildcards(at, accounts)
	r.stated(at, slices.Concat(identities, tokens, namespaces, accounts, addresses))
}

// operation validates one operation of a rule.
func (r *report) operation(at string, o *securityv1.Operation) {
	ports := []list{{"ports", o.GetPorts()}, {"notPorts", o.GetNotPorts()}}
	paths := []list{{"paths", o.GetPaths()}, {"notPaths", o.GetNotPaths()}}
	names := []list{{"hosts", o.GetHosts()}, {"notHosts", o.GetNotHosts()}, {"methods", o.GetMethods()}, {"notMethods", o.GetNotMethods()}}
	for _, of := range ports {
		r.each(at+"."+of.field, of.values, portNumber)
	}
	for _, of := range paths {
		r.paths(at+"."+of.field, of.values)
	}
	r.stars(at, slices.Concat(names, paths))
	r.stated(at, slices.Concat(names, ports, paths))
}

// condition validates one condition of a rule.
func (r *report) condition(at string, c *securityv1.Condition) {
	key, values := c.GetKey(), []list{{"values", c.GetValues()}, {"notValues", c.GetNotValues()}}
	if key == "" || len(c.GetValues())+len(c.GetNotValues()) == 0 {
		r.errorf(at, "wants a key, and values or notValues")
	}
	check := map[string]func(string) string{"source.ip": ipBlock, "remote.ip": ipBlock, "destination.ip": ipBlock,
		"destination.port": portNumber}[key]
	if check != nil {
		r.each(at+".values", c.GetValues(), check)
		r.each(at+".notValues", c.GetNotValues(), check)
	}
	switch {
	case key == "source.serviceAccount":
		r.schemes(at, values)
		r.noWildcards(at, values)
	case key == "source.principal", key == "source.trustDomain":
		r.schemes(at, values)
		r.stars(at, values)
	case slices.Contains(whenKeys, key):
	case !slices.ContainsFunc(whenPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }):
		r.refusef(problem.Invalid, at+".key", "%q is no attribute of requests", key)
	case !whenMap.MatchString(key):
		r.refusef(problem.Invalid, at+".key", "%q names nothing: want a name in brackets at its end", key)
	}
}

// deny refuses a DENY policy without rules, and warns of rules whose effect their author may not expect. At TCP ports a
// rule applies without its HTTP fields. Istio's webhook has the same warning
// (https://istio.io/latest/docs/tasks/security/authorization/authz-tcp/).
func (r *report) deny(rules []*securityv1.Rule) {
	if len(rules) == 0 {
		r.refusef(problem.NoEffect, "spec.rules", "is empty: action DENY denies no request")
	}
	for i, rule := range rules {
		http := slices.ContainsFunc(rule.GetWhen(), func(c *securityv1.Condition) bool { return strings.HasPrefix(c.GetKey(), "request.") })
		for _, from := range rule.GetFrom() {
			http = http || len(from.GetSource().GetRequestPrincipals())+len(from.GetSource().GetNotRequestPrincipals()) > 0
		}
		ports := slices.ContainsFunc(rule.GetWhen(), func(c *securityv1.Condition) bool { return c.GetKey() == "destination.port" })
		for _, to := range rule.GetTo() {
			o := to.GetOperation()
			http = http || len(o.GetHosts())+len(o.GetNotHosts())+len(o.GetMethods())+len(o.GetNotMethods()) > 0 ||
				len(o.GetPaths())+len(o.GetNotPaths()) > 0
			ports = ports || len(o.GetPorts())+len(o.GetNotPorts()) > 0
		}
		if http && !ports {
			r.warnf(problem.NoEffect, fmt.Sprintf("spec.rules[%d]", i),
				"at TCP ports its HTTP fields are ignored: there it denies all connections that its other fields match. "+
					"State the ports that are meant: those of the workload's Pod (of a gateway: the port that its Service leads to)")
		}
	}
}

// custom refuses, in new objects, fields that Istio refuses together with action CUSTOM. If an existing object has such
// fields, this version enforces them, except conditions on tokens (see unenforced). Tokens are verified only after the
// provider's decision.
func (r *report) custom(p *securityv1.AuthorizationPolicy) {
	const not = "is not supported by Istio with action CUSTOM"
	if len(p.Rules) == 0 {
		r.refusef(problem.NoEffect, "spec.rules", "is empty: action CUSTOM sends no request to the provider; the rule {} matches all requests")
	}
	for i, rule := range p.Rules {
		for j, from := range rule.GetFrom() {
			s := from.GetSource()
			for _, of := range []list{{"namespaces", s.GetNamespaces()}, {"notNamespaces", s.GetNotNamespaces()},
				{"principals", s.GetPrincipals()}, {"notPrincipals", s.GetNotPrincipals()},
				{"requestPrincipals", s.GetRequestPrincipals()}, {"notRequestPrincipals", s.GetNotRequestPrincipals()}} {
				if len(of.values) > 0 {
					r.refusef(problem.Invalid, fmt.Sprintf("spec.rules[%d].from[%d].source.%s", i, j, of.field), not)
				}
			}
		}
		for j, c := range rule.GetWhen() {
			if key := c.GetKey(); key == "source.namespace" || key == "source.principal" || aboutToken(key) {
				r.refusef(problem.Invalid, fmt.Sprintf("spec.rules[%d].when[%d].key", i, j), "%q "+not, key)
			}
		}
	}
}

// aboutToken reports whether a key of `when` refers to the token of a request.
func aboutToken(key string) bool { return strings.HasPrefix(key, "request.auth.") }

// whenPrefixes has the prefixes of keys of `when` that Istio accepts in addition to whenKeys. whenMap matches the keys
// with the name of a map and, in brackets, the name of an entry.
var (
	whenPrefixes = []string{"request.headers", "request.experimental.inline.headers", "request.auth.claims", "experimental.envoy.filters."}
	whenMap      = regexp.MustCompile(`^[^\[]+\[.+\]$`)
)

// schemes warns of identities that are written as SPIFFE IDs, because policies compare only the part after spiffe://.
func (r *report) schemes(at string, all []list) {
	const scheme = "spiffe://"
	for _, of := range all {
		for i, v := range of.values {
			if len(v) >= len(scheme) && strings.EqualFold(v[:len(scheme)], scheme) {
				r.warnf(problem.NoEffect, fmt.Sprintf("%s.%s[%d]", at, of.field, i), "%q matches no identity: write it without the scheme, as %q", v,
					v[len(scheme):])
			}
		}
	}
}

// stars warns of values with a * that is not a wildcard, and therefore matches only the character *. A DENY rule with
// such a value matches almost nothing.
func (r *report) stars(at string, all []list) {
	for _, of := range all {
		for i, v := range of.values {
			rest, is := strings.CutPrefix(v, "*")
			if !is {
				rest = strings.TrimSuffix(v, "*")
			}
			if strings.Contains(rest, "*") && !model.IsPathTemplate(v) {
				r.warnf(problem.NoEffect, fmt.Sprintf("%s.%s[%d]", at, of.field, i),
					"%q: * is a wildcard at the beginning or, without one there, at the end; this one stands for itself", v)
			}
		}
	}
}

// noWildcards warns of service accounts that contain a *.
func (r *report) noWildcards(at string, all []list) {
	for _, of := range all {
		for i, v := range of.values {
			if strings.Contains(v, "*") {
				r.warnf(problem.NoEffect, fmt.Sprintf("%s.%s[%d]", at, of.field, i),
					"%q: service accounts have no wildcards; this one stands for itself", v)
			}
		}
	}
}

// list has the values of one field.
type list struct {
	field  string
	values []string
}

// stated refuses a source or an operation without any value, and empty values.
func (r *report) stated(at string, all []list) {
	count := 0
	for _, of := range all {
		if count += len(of.values); slices.Contains(of.values, "") {
			r.refusef(problem.Invalid, at+"."+of.field, "must not have empty values")
		}
	}
	if count == 0 {
		r.refusef(problem.Required, at, "must have at least one field")
	}
}

// each reports an error for each value for which check returns a reason.
func (r *report) each(at string, values []string, check func(string) string) {
	for i, v := range values {
		r.step()
		if wrong := check(v); wrong != "" {
			r.errorf(fmt.Sprintf("%s[%d]", at, i), "%q: %s", v, wrong)
		}
	}
}

// paths reports an error for path templates that Envoy refuses. It refuses braces outside of templates, as Istio's
// webhook does. In an existing object such braces match literally.
func (r *report) paths(at string, values []string) {
	r.each(at, values, pathTemplate)
	for i, v := range values {
		if strings.ContainsAny(v, "{}") && !model.IsPathTemplate(v) {
			r.refusef(problem.NoEffect, fmt.Sprintf("%s[%d]", at, i), "%q: braces are for the templates {*} and {**}, and match themselves alone", v)
		}
	}
}

// ipBlock returns the reason why a text is neither an IP address nor a CIDR. It returns "" for a valid text.
func ipBlock(v string) string {
	if _, err := netip.ParsePrefix(v); err == nil {
		return ""
	}
	if a, err := netip.ParseAddr(v); err == nil && a.Zone() == "" {
		return ""
	}
	return "want an IP address or a CIDR"
}

// portNumber returns the reason why a text is not a port. It returns "" for a valid port.
func portNumber(v string) string {
	if _, err := strconv.ParseUint(v, 10, 16); err != nil { // Istio and Envoy accept port 0, which no connection has
		return "want a port, 0 to 65535"
	}
	return ""
}

// pathTemplate returns the reason why a path template is invalid. It returns "" for a valid template, and for a path
// without a template. {*} stands for one segment. {**} stands for any number of segments, and must be the last
// operator. Both must be whole segments
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/#Operation).
func pathTemplate(v string) string {
	if !model.IsPathTemplate(v) {
		return ""
	}
	if !strings.HasPrefix(v, "/") {
		return "a path with a template begins with /"
	}
	ended := false
	for segment := range strings.SplitSeq(v[1:], "/") {
		switch {
		case segment == "{*}" || segment == "{**}":
			if ended {
				return "{**} has to be the last operator"
			}
			ended = segment == "{**}"
		case strings.ContainsAny(segment, "{}*") || segment != "" && !pathLiteral.MatchString(segment):
			return "want {*} or {**} as a whole segment, and nothing else that is special"
		}
	}
	return ""
}

// pathLiteral matches a segment without templates (RFC 3986, pchar).
var pathLiteral = regexp.MustCompile("^[a-zA-Z0-9-._~%!$&'()+,;:@=]+$")

// tokenLater is the reason why conditions on tokens cannot be enforced with action CUSTOM.
const tokenLater = "tokens are verified after a provider was asked"

// unenforced returns the path of the first field that this version cannot enforce, with the reason. Both are empty if
// all fields can be enforced.
func unenforced(p *securityv1.AuthorizationPolicy) (field, why string) {
	custom := p.Action == securityv1.AuthorizationPolicy_CUSTOM
	for i, rule := range p.Rules {
		for j, from := range rule.GetFrom() {
			s, at := from.GetSource(), fmt.Sprintf("spec.rules[%d].from[%d].source", i, j)
			if custom && len(s.GetRequestPrincipals())+len(s.GetNotRequestPrincipals()) > 0 {
				return at + ".requestPrincipals", tokenLater
			}
			if empty(s.GetPrincipals(), s.GetNotPrincipals(), s.GetNamespaces(), s.GetNotNamespaces(), s.GetServiceAccounts(),
				s.GetNotServiceAccounts(), s.GetIpBlocks(), s.GetNotIpBlocks(), s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(),
				s.GetTrustDomains(), s.GetNotTrustDomains(), s.GetRequestPrincipals(), s.GetNotRequestPrincipals()) {
				return at, "a source without a field says nothing"
			}
		}
		for j, to := range rule.GetTo() {
			o, at := to.GetOperation(), fmt.Sprintf("spec.rules[%d].to[%d].operation", i, j)
			if empty(o.GetHosts(), o.GetNotHosts(), o.GetPorts(), o.GetNotPorts(), o.GetMethods(), o.GetNotMethods(),
				o.GetPaths(), o.GetNotPaths()) {
				return at, "an operation without a field says nothing"
			}
		}
		for j, c := range rule.GetWhen() {
			if custom && aboutToken(c.GetKey()) {
				return fmt.Sprintf("spec.rules[%d].when[%d].key", i, j), tokenLater
			}
			_, claim := model.ClaimPath(c.GetKey())
			_, _, header := model.ConditionHeader(c.GetKey())
			if !slices.Contains(whenKeys, c.GetKey()) && !claim && !header && !metadataKey.MatchString(c.GetKey()) {
				return fmt.Sprintf("spec.rules[%d].when[%d].key", i, j), fmt.Sprintf("%q is not supported", c.GetKey())
			}
		}
	}
	return "", ""
}

// empty reports whether all lists are empty.
func empty(lists ...[]string) bool {
	return !slices.ContainsFunc(lists, func(list []string) bool { return len(list) > 0 })
}
