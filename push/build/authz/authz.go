// Package authz draws AuthorizationPolicies: records in, rules for Envoy's RBAC filters out.
//
// Owns: nothing.  Reads: its arguments.  Never: decides which policies select a workload.
package authz

import (
	"strconv"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// drawing is the rules of one policy in the making.
type drawing struct {
	domains   []string // the mesh's trust domain, and its aliases
	namespace string   // of the policy
	http      bool
	wide      bool // what cannot be read of a connection that is not HTTP is left out of a rule; else the rule matches nothing
	never     bool // the rule in the making can match nothing
}

// rule draws one rule: a principal for each source and a permission for each operation, each with the conditions; nil: it matches nothing.
func (d *drawing) rule(r *securityv1.Rule) *rbacv3.Policy {
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

// never is a rule that matches nothing: a policy without rules has it, so that its name is shown.
func never() *rbacv3.Policy {
	return &rbacv3.Policy{Permissions: []*rbacv3.Permission{neverPermission()}, Principals: []*rbacv3.Principal{neverPrincipal()}}
}

// source is all of its fields, which have to match together.
func (d *drawing) source(s *securityv1.Source) []*rbacv3.Principal {
	var all []*rbacv3.Principal
	field := func(values, not []string, one func(string) *rbacv3.Principal) {
		all = append(all, principalsOf(values, not, one)...)
	}
	field(s.GetPrincipals(), s.GetNotPrincipals(), d.principal)
	if d.readsHTTP(len(s.GetRequestPrincipals()) + len(s.GetNotRequestPrincipals())) {
		field(s.GetRequestPrincipals(), s.GetNotRequestPrincipals(), requestPrincipal)
	}
	field(s.GetNamespaces(), s.GetNotNamespaces(), d.fromNamespace)
	field(s.GetServiceAccounts(), s.GetNotServiceAccounts(), d.account)
	field(s.GetTrustDomains(), s.GetNotTrustDomains(), d.trustDomain)
	field(s.GetIpBlocks(), s.GetNotIpBlocks(), directIP)
	field(s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), remoteIP)
	return all
}

// operation is all of its fields, which have to match together.
func (d *drawing) operation(o *securityv1.Operation) []*rbacv3.Permission {
	var all []*rbacv3.Permission
	field := func(values, not []string, one func(string) *rbacv3.Permission) {
		all = append(all, permissionsOf(values, not, one)...)
	}
	field(o.GetPorts(), o.GetNotPorts(), port)
	if d.readsHTTP(len(o.GetHosts()) + len(o.GetNotHosts()) + len(o.GetMethods()) + len(o.GetNotMethods()) + len(o.GetPaths()) + len(o.GetNotPaths())) {
		field(o.GetHosts(), o.GetNotHosts(), host)
		field(o.GetMethods(), o.GetNotMethods(), method)
		field(o.GetPaths(), o.GetNotPaths(), path)
	}
	return all
}

// readsHTTP says whether fields of HTTP, if there are any, can be drawn; where not, an ALLOW rule matches nothing, and
// another goes without them.
func (d *drawing) readsHTTP(fields int) bool {
	if d.http || fields == 0 {
		return d.http
	}
	d.never = d.never || !d.wide
	return false
}

// conditions draws the `when` of a rule.
func (d *drawing) conditions(all []*securityv1.Condition) (principals []*rbacv3.Principal, permissions []*rbacv3.Permission) {
	for _, c := range all {
		if name, inline, ok := model.ConditionHeader(c.GetKey()); ok {
			match := header
			if inline {
				match = oneOf
			}
			if d.readsHTTP(1) {
				principals = append(principals, principalsOf(c.GetValues(), c.GetNotValues(), func(v string) *rbacv3.Principal { return match(name, v) })...)
			}
			continue
		}
		if path, is := readsToken(c.GetKey()); is {
			if d.readsHTTP(1) {
				principals = append(principals, token(path, c.GetValues(), c.GetNotValues())...)
			}
			continue
		}
		if one := d.principalKey(c.GetKey()); one != nil {
			principals = append(principals, principalsOf(c.GetValues(), c.GetNotValues(), one)...)
		} else if one := permissionKey(c.GetKey()); one != nil {
			permissions = append(permissions, permissionsOf(c.GetValues(), c.GetNotValues(), one)...)
		} else if all := found(c.GetKey()); all != nil {
			permissions = append(permissions, together(c.GetValues(), c.GetNotValues(), all)...)
		} else { // the store closes such policies: this is for records of a newer version
			d.never = !d.wide
		}
	}
	return principals, permissions
}

func (d *drawing) principalKey(key string) func(string) *rbacv3.Principal {
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

func port(v string) *rbacv3.Permission {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		return neverPermission()
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(n)}}
}
