// Package authz builds the rules of Envoy's RBAC filters from AuthorizationPolicies. Route matches also use its matcher
// of JWT claims (Claim).
//
// Owns: nothing.
// Reads: its arguments.
// Never: decides which policies select a workload.
package authz

import (
	"strconv"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// ruleBuilder builds the rules of one policy.
type ruleBuilder struct {
	domains   []string // the mesh's trust domain, then its aliases
	namespace string   // of the policy
	http      bool
	gateway   bool // the policy is enforced at a gateway
	lenient   bool // unsupported fields and unknown conditions are ignored; false: they match nothing
	never     bool // the current rule, or the current part of it, matches nothing
}

// rule builds one rule: a principal for each source and a permission for each operation, each with the conditions. It
// returns nil if fields of HTTP or unknown conditions cause the rule to match nothing.
func (d *ruleBuilder) rule(r *securityv1.Rule) *rbacv3.Policy {
	d.never = false
	ofCaller, ofRequest := d.conditions(r.GetWhen())
	if d.never {
		return nil
	}
	out := &rbacv3.Policy{}
	for _, from := range r.GetFrom() {
		d.never = false
		if all := d.source(from.GetSource()); !d.never {
			out.Principals = append(out.Principals, andPrincipals(append(all, ofCaller...)))
		}
	}
	for _, to := range r.GetTo() {
		d.never = false
		if all := d.operation(to.GetOperation()); !d.never {
			out.Permissions = append(out.Permissions, andPermissions(append(all, ofRequest...)))
		}
	}
	if len(r.GetFrom()) == 0 {
		out.Principals = append(out.Principals, andPrincipals(ofCaller))
	}
	if len(r.GetTo()) == 0 {
		out.Permissions = append(out.Permissions, andPermissions(ofRequest))
	}
	if len(out.Principals) == 0 || len(out.Permissions) == 0 {
		return nil
	}
	return out
}

// never returns a rule that matches nothing. Build uses it for a policy without rules. So Envoy's configuration names
// this policy, too.
func never() *rbacv3.Policy {
	return &rbacv3.Policy{Permissions: []*rbacv3.Permission{neverPermission()}, Principals: []*rbacv3.Principal{neverPrincipal()}}
}

// source returns a principal for each field of a source; all of them have to match.
func (d *ruleBuilder) source(s *securityv1.Source) []*rbacv3.Principal {
	var all []*rbacv3.Principal
	field := func(values, not []string, one func(string) *rbacv3.Principal) {
		all = append(all, principalsOf(values, not, one)...)
	}
	field(s.GetPrincipals(), s.GetNotPrincipals(), d.principal)
	if d.supportsHTTP(len(s.GetRequestPrincipals()) + len(s.GetNotRequestPrincipals())) {
		field(s.GetRequestPrincipals(), s.GetNotRequestPrincipals(), requestPrincipal)
	}
	field(s.GetNamespaces(), s.GetNotNamespaces(), d.fromNamespace)
	field(s.GetServiceAccounts(), s.GetNotServiceAccounts(), d.account)
	field(s.GetTrustDomains(), s.GetNotTrustDomains(), d.trustDomain)
	field(s.GetIpBlocks(), s.GetNotIpBlocks(), directIP)
	field(s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), remoteIP)
	return all
}

// operation returns a permission for each field of an operation; all of them have to match.
func (d *ruleBuilder) operation(o *securityv1.Operation) []*rbacv3.Permission {
	var all []*rbacv3.Permission
	field := func(values, not []string, one func(string) *rbacv3.Permission) {
		all = append(all, permissionsOf(values, not, one)...)
	}
	field(o.GetPorts(), o.GetNotPorts(), port)
	hosts, methods := len(o.GetHosts())+len(o.GetNotHosts()), len(o.GetMethods())+len(o.GetNotMethods())
	if d.supportsHTTP(hosts + methods + len(o.GetPaths()) + len(o.GetNotPaths())) {
		all = append(all, d.hosts(o.GetHosts(), o.GetNotHosts())...)
		field(o.GetMethods(), o.GetNotMethods(), method)
		field(o.GetPaths(), o.GetNotPaths(), path)
	}
	return all
}

// hosts returns the permissions of an operation's hosts and notHosts. At a gateway, "host:port" has the same route as
// "host", and a wildcard's virtual host also serves names with trailing dots. A client could evade a rule with these
// forms of the host. So the notHosts of ALLOW rules, and the hosts of rules of all other actions, match all forms
// (anyForm).
func (d *ruleBuilder) hosts(values, not []string) []*rbacv3.Permission {
	of, ofNot := host, host
	if d.gateway && d.lenient {
		of = anyForm
	} else if d.gateway {
		ofNot = anyForm
	}
	return append(permissionsOf(values, nil, of), permissionsOf(nil, not, ofNot)...)
}

// supportsHTTP reports whether the traffic is HTTP, so that fields of HTTP can be matched. The argument fields is the
// number of values of such fields in the current part of the rule. If the traffic is not HTTP, that part of an ALLOW
// rule matches nothing (never is set), and other rules ignore the fields.
func (d *ruleBuilder) supportsHTTP(fields int) bool {
	if d.http || fields == 0 {
		return d.http
	}
	d.never = d.never || !d.lenient
	return false
}

// conditions builds the `when` of a rule; all returned principals and permissions have to match.
func (d *ruleBuilder) conditions(all []*securityv1.Condition) (principals []*rbacv3.Principal, permissions []*rbacv3.Permission) {
	for _, c := range all {
		if name, inline, ok := model.ConditionHeader(c.GetKey()); ok {
			match := header
			if inline {
				match = inlineHeader
			}
			if d.supportsHTTP(1) {
				one := func(v string) *rbacv3.Principal { return match(name, v) }
				principals = append(principals, principalsOf(c.GetValues(), c.GetNotValues(), one)...)
			}
			continue
		}
		if path, is := tokenClaim(c.GetKey()); is {
			if d.supportsHTTP(1) {
				principals = append(principals, tokenCondition(path, c.GetValues(), c.GetNotValues())...)
			}
			continue
		}
		if one := d.principalKey(c.GetKey()); one != nil {
			principals = append(principals, principalsOf(c.GetValues(), c.GetNotValues(), one)...)
		} else if one := permissionKey(c.GetKey()); one != nil {
			permissions = append(permissions, permissionsOf(c.GetValues(), c.GetNotValues(), one)...)
		} else if all := metadataCondition(c.GetKey()); all != nil {
			permissions = append(permissions, permissionsOfAll(c.GetValues(), c.GetNotValues(), all)...)
		} else { // an unknown key: the store refuses such policies, so the record is of a newer version
			d.never = !d.lenient
		}
	}
	return principals, permissions
}

// principalKey returns the constructor of a principal for a key of `when`; nil for other keys.
func (d *ruleBuilder) principalKey(key string) func(string) *rbacv3.Principal {
	switch key {
	case "source.ip":
		return directIP
	case "remote.ip":
		return remoteIP
	case "source.namespace":
		return d.fromNamespace
	case "source.principal":
		return d.principal
	case "source.serviceAccount":
		return d.account
	case "source.trustDomain":
		return d.trustDomain
	}
	return nil
}

// permissionKey returns the constructor of a permission for a key of `when`; nil for other keys.
func permissionKey(key string) func(string) *rbacv3.Permission {
	switch key {
	case "destination.ip":
		return destinationIP
	case "destination.port":
		return port
	case "connection.sni":
		return serverName
	}
	return nil
}

// port matches the destination port.
func port(v string) *rbacv3.Permission {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		return neverPermission()
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(n)}}
}
