package normal

import (
	"fmt"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// checkRegex validates a regular expression: RE2, at most 1024 bytes. The expressions of one object may take
// model.MostRegexWork to parse. Those beyond this bound are not parsed.
func checkRegex(r *report, at, expr string) {
	if len(expr) > 1024 {
		r.errorf(at, "is longer than 1024 bytes")
		return
	}
	before := r.regexWork
	r.regexWork += model.RegexWork(expr)
	switch {
	case before > model.MostRegexWork:
		return // reported already
	case r.regexWork > model.MostRegexWork:
		r.errorf(at, "the regular expressions up to this one take too long to parse: use fewer, and fewer classes such as \\pL and "+
			"ranges with (?i) beyond ASCII")
		return
	}
	if expr == "" {
		r.requiredf(at, "must not be empty")
	} else if err := model.CheckRegex(expr); err != nil {
		r.errorf(at, "is no regular expression (RE2): %v", err)
	}
}

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
