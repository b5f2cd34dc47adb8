package proxyless

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/build/authz"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

func joined(bind string, port uint32) string {
	return net.JoinHostPort(bind, strconv.FormatUint(uint64(port), 10))
}

// Problems are the conditions of AuthorizationPolicies that a gRPC server cannot enforce (gRFC A41): it knows no server name of TLS,
// refuses rules about some headers, and never sees others. Where there is one, nobody may call the server.
func Problems(policies []*model.Policy) (out []model.Problem) {
	for _, p := range policies {
		for i, rule := range model.Authorization(p).GetRules() {
			for j, when := range rule.GetWhen() {
				if why := unenforceable(when.GetKey()); why != "" {
					out = append(out, model.Problem{Key: p.Key, Field: fmt.Sprintf("spec.rules[%d].when[%d].key", i, j), Code: problem.NotSupported,
						Severity: problem.Error, Message: fmt.Sprintf("%s: %s (proxyless gRPC); nobody may call servers that the policy selects", when.GetKey(), why)})
				}
			}
		}
	}
	return out
}

// unenforceable says why a condition cannot be enforced; empty: it can.
func unenforceable(key string) string {
	if key == "connection.sni" {
		return "servers do not know it"
	}
	header, is := authz.HeaderOf(key)
	header = strings.ToLower(header)
	switch {
	case !is:
		return ""
	case header == ":scheme", strings.HasPrefix(header, "grpc-"):
		return "servers refuse rules about it"
	case header == "te", header == "content-length", header == "connection", header == "host":
		return "servers do not see it as it came"
	}
	return ""
}

// strangers denies who has no identity of the trust domains.
func strangers(domains []string) *rbacconfigv3.RBAC {
	var members []*rbacconfigv3.Principal
	for _, domain := range domains {
		members = append(members, &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_Authenticated_{Authenticated: &rbacconfigv3.Principal_Authenticated{
			PrincipalName: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + domain + "/"}},
		}}})
	}
	anyone := &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_OrIds{OrIds: &rbacconfigv3.Principal_Set{Ids: members}}}
	return &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_DENY, Policies: map[string]*rbacconfigv3.Policy{"of another trust domain": {
		Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Any{Any: true}}},
		Principals:  []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_NotId{NotId: anyone}}},
	}}}
}
