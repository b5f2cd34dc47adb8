package proxyless

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// hostPort returns "bind:port"; an IPv6 address is in brackets.
func hostPort(bind string, port uint32) string {
	return net.JoinHostPort(bind, strconv.FormatUint(uint64(port), 10))
}

// Problems returns one problem for each part of the policies that a gRPC server cannot enforce (gRFC A41). Without such
// parts, the result is nil. The parts are the action CUSTOM, a source with request principals, an operation with path
// templates, and a condition (`when`) with an unsupported key. Unsupported keys are connection.sni, request.auth.*,
// experimental.*, and the names of some headers. gRPC servers refuse rules on these headers, or do not see the headers
// as the client sent them. All problems have the severity Error. A server that a reported policy selects refuses all
// calls (Server.Build). Each element of policies must be an AuthorizationPolicy.
func Problems(policies []*model.Policy) (out []model.Problem) {
	for _, p := range policies {
		add := func(field, format string, args ...any) {
			out = append(out, model.Problem{Key: p.Key, Field: field, Code: problem.NotSupported, Severity: problem.Error,
				Message: fmt.Sprintf(format, args...) + " (proxyless gRPC); servers that the policy selects refuse all calls"})
		}
		m := model.Authorization(p)
		if m.GetAction() == securityv1.AuthorizationPolicy_CUSTOM {
			add("spec.action", "CUSTOM: servers do not support external authorization")
		}
		for i, rule := range m.GetRules() {
			for j, from := range rule.GetFrom() {
				s, of := from.GetSource(), fmt.Sprintf("spec.rules[%d].from[%d].source.", i, j)
				if len(s.GetRequestPrincipals()) > 0 {
					add(of+"requestPrincipals", noTokens)
				}
				if len(s.GetNotRequestPrincipals()) > 0 {
					add(of+"notRequestPrincipals", noTokens)
				}
			}
			for j, to := range rule.GetTo() {
				o, of := to.GetOperation(), fmt.Sprintf("spec.rules[%d].to[%d].operation.", i, j)
				if slices.ContainsFunc(o.GetPaths(), model.IsPathTemplate) {
					add(of+"paths", "servers do not support path templates")
				}
				if slices.ContainsFunc(o.GetNotPaths(), model.IsPathTemplate) {
					add(of+"notPaths", "servers do not support path templates")
				}
			}
			for j, when := range rule.GetWhen() {
				if why := unenforceable(when.GetKey()); why != "" {
					add(fmt.Sprintf("spec.rules[%d].when[%d].key", i, j), "%s: %s", when.GetKey(), why)
				}
			}
		}
	}
	return out
}

// noTokens is the reason why a gRPC server cannot enforce fields that concern tokens.
const noTokens = "servers do not verify tokens"

// unenforceable returns the reason why a gRPC server cannot enforce a key of `when`, or "" if it can.
func unenforceable(key string) string {
	if key == "connection.sni" {
		return "servers do not support it"
	}
	if strings.HasPrefix(key, "request.auth.") {
		return noTokens
	}
	if strings.HasPrefix(key, "experimental.") {
		return "servers do not run filters of Envoy"
	}
	header, _, is := model.ConditionHeader(key)
	header = strings.ToLower(header)
	switch {
	case !is:
		return ""
	case header == ":scheme", strings.HasPrefix(header, "grpc-"):
		return "servers refuse rules about it"
	case header == "te", header == "content-length", header == "connection", header == "host":
		return "servers do not keep the header as the client sent it"
	}
	return ""
}

// denyOtherDomains returns rules that refuse callers without an identity in one of the trust domains.
func denyOtherDomains(domains []string) *rbacconfigv3.RBAC {
	var members []*rbacconfigv3.Principal
	for _, domain := range domains {
		prefix := &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + domain + "/"}
		members = append(members, &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_Authenticated_{
			Authenticated: &rbacconfigv3.Principal_Authenticated{PrincipalName: &matcherv3.StringMatcher{MatchPattern: prefix}},
		}})
	}
	anyone := &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_OrIds{OrIds: &rbacconfigv3.Principal_Set{Ids: members}}}
	return &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_DENY, Policies: map[string]*rbacconfigv3.Policy{"of another trust domain": {
		Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Any{Any: true}}},
		Principals:  []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_NotId{NotId: anyone}}},
	}}}
}
