package gateway

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// unverified returns one problem for each VirtualService in the rules that matches a claim of a token, if no
// RequestAuthentication applies to the routers. Without a RequestAuthentication, no request has claims.
func (f *Front) unverified(rules []vhost.Rule) (found []input.Problem) {
	if f.edge.Authentications.Len() > 0 || f.Key.Edge.Value().Closed {
		return nil
	}
	named := map[*model.VirtualService]bool{}
	for _, r := range rules {
		if named[r.VirtualService] {
			continue
		}
		if field, claim := claimMatch(r); claim != "" {
			named[r.VirtualService] = true
			p := input.Warning(r.VirtualService.Key, problem.NoEffect, field,
				fmt.Sprintf("no RequestAuthentication is for the gateway workloads in namespace %s, so no request there has the claim %s: "+
					"add one for these workloads", f.Key.Namespace, claim))
			p.Analyzer = problem.JwtClaimBasedRoutingWithoutRequestAuthN
			found = append(found, p)
		}
	}
	return found
}

// claimMatch returns the field and the name of a rule's first match on a claim. Both are empty without such a match.
func claimMatch(r vhost.Rule) (field, claim string) {
	for i, m := range r.HTTP().GetMatch() {
		if slices.Contains(r.Excluded.All(), i) {
			continue
		}
		if field, claim := virtualservice.ClaimOf(m); claim != "" {
			return fmt.Sprintf("spec.http[%d].match[%d].%s", r.Index, i, field), claim
		}
	}
	return "", ""
}
