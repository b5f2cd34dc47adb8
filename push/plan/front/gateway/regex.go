package gateway

import (
	"fmt"
	"runtime"
	"sync"
	"weak"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// regexCost is the cost of the regular expressions of one rule (model.RegexCosts).
type regexCost struct{ match, action int }

// knownCosts caches the result of regexCosts while the VirtualService is in memory, because many virtual hosts have
// rules of the same VirtualService. It maps weak.Pointer[model.VirtualService] to []regexCost.
var knownCosts sync.Map

// regexCosts returns the cost of each http rule of a VirtualService, in the order of the rules.
func regexCosts(vs *model.VirtualService) []regexCost {
	key := weak.Make(vs)
	if known, ok := knownCosts.Load(key); ok {
		return known.([]regexCost)
	}
	all := make([]regexCost, 0, len(vs.Spec.GetHttp()))
	var costs model.RegexCosts
	for _, rule := range vs.Spec.GetHttp() {
		match, action := costs.Rule(rule)
		all = append(all, regexCost{match, action})
	}
	if _, again := knownCosts.LoadOrStore(key, all); !again {
		runtime.AddCleanup(vs, func(key weak.Pointer[model.VirtualService]) { knownCosts.Delete(key) }, key)
	}
	return all
}

// affordable returns the rules of a domain that are not too costly. The regular expressions of a rule, and those of the
// preceding kept rules of its namespace, may together cost model.MostRegexCost. A rule that exceeds this cost is left
// out. Each VirtualService that loses a rule gets one problem.
func affordable(domain string, rules []vhost.Rule) (kept []vhost.Rule, found []input.Problem) {
	spent := map[string]regexCost{} // by namespace
	named := map[*model.VirtualService]bool{}
	for _, r := range rules {
		vs := r.VirtualService
		cost, sum := regexCosts(vs)[r.Index], spent[vs.Key.Namespace]
		sum.match, sum.action = sum.match+cost.match, max(sum.action, cost.action)
		if cost == (regexCost{}) || sum.match+sum.action <= model.MostRegexCost {
			spent[vs.Key.Namespace], kept = sum, append(kept, r)
			continue
		}
		if !named[vs] {
			named[vs] = true
			found = append(found, input.Problem{Key: vs.Key, Field: fmt.Sprintf("spec.http[%d]", r.Index), Code: problem.NotAllowed,
				Severity: problem.Error, Message: fmt.Sprintf("the regular expressions of namespace %s for host %s would take Envoy %d "+
					"instructions for each byte of a header, and %d are allowed at gateways; the rule, and those behind it that "+
					"exceed the bound too, are left out",
					vs.Key.Namespace, domain, sum.match+sum.action, model.MostRegexCost)})
		}
	}
	return kept, found
}
