package normal

import (
	"fmt"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// checkRegexCost reports the first rule at which the regular expressions of a VirtualService cost more than
// model.MostRegexCost. The cost is the sum over all matches up to this rule, and the most expensive action among these
// rules. Gateways leave such rules out, because the largest request would occupy Envoy for too long.
func checkRegexCost(r *report, vs *networkingv1.VirtualService) {
	sum, most := 0, 0
	var costs model.RegexCosts
	for i, h := range vs.Http {
		r.look() // the check of one rule may take many milliseconds
		match, action := costs.Rule(h)
		sum, most = sum+match, max(most, action)
		if sum+most > model.MostRegexCost {
			r.refusef(problem.NotAllowed, fmt.Sprintf("spec.http[%d]", i), "the regular expressions up to this rule would take Envoy %d "+
				"instructions for each byte of a header, and %d are allowed: gateways leave such rules out", sum+most, model.MostRegexCost)
			return
		}
	}
}
