package host

import (
	"slices"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// BoundTo returns the VirtualServices with http rules that list exactly this host or wildcard, name the gateway
// ("namespace/name"), and are exported to the proxies' namespace. They are sorted by precedence (see precedes), the
// highest first. The result is nil without such VirtualServices.
func (t *Table) BoundTo(gateway, host string) (all []*model.VirtualService) {
	for r := range t.in.ByHost(model.KindVirtualService, host) {
		if vs := r.(*model.VirtualService); len(vs.Spec.GetHttp()) > 0 && t.sees(vs, gateway) {
			all = append(all, vs)
		}
	}
	return t.ordered(all)
}

// BoundOver returns the VirtualServices that BoundTo returns for the host or for a wildcard that covers it. Each occurs
// once. They are sorted by precedence.
func (t *Table) BoundOver(gateway, host string) (all []*model.VirtualService) {
	t.in.Index.Covering(model.KindVirtualService, host, func(pattern string) bool {
		all = append(all, t.BoundTo(gateway, pattern)...)
		return true
	})
	return t.ordered(all)
}

// BoundConnecting returns the VirtualServices with tcp or tls rules that name the gateway ("namespace/name") and are
// exported to the proxies' namespace. They are sorted by precedence.
func (t *Table) BoundConnecting(gateway string) (all []*model.VirtualService) {
	for _, vs := range t.in.BoundConnecting(gateway) {
		if t.sees(vs, gateway) {
			all = append(all, vs)
		}
	}
	return t.ordered(all)
}

// ordered sorts VirtualServices by precedence in place, and returns them without duplicates.
func (t *Table) ordered(all []*model.VirtualService) []*model.VirtualService {
	slices.SortFunc(all, t.precedes)
	return slices.Compact(all)
}

// BoundRoutes sets the Rules and Destinations of spec, which describes a virtual host of a gateway. The parameter rules
// has the http rules (RulesFor) of all VirtualServices that are bound to the host, in order of precedence. A match of
// all requests moves to the end, so a rule that also has other matches is split. Later rules of the same VirtualService
// are unreachable and left out (istio: pilot/pkg/networking/core/route, SortVHostRoutes). BoundRoutes appends problems
// to found. If no rule applies to the proxies that the Perspective selects, it returns false and does not change spec.
func (t *Table) BoundRoutes(spec *vhost.Spec, rules intern.List[vhost.Rule], as Perspective, found *[]input.Problem) bool {
	applying, applies := t.applying(rules, spec.Port, as.Inputs)
	if applies {
		t.resolve(spec, ruleLists.List(catchAllsLast(applying.All())...), as, found)
	}
	return applies
}

// BoundOrder returns the rules that BoundRoutes sets for a port and for proxies with the given inputs, in the order of
// their routes. It returns nil if no rule applies.
func (t *Table) BoundOrder(rules intern.List[vhost.Rule], port uint32, inputs view.Inputs) []vhost.Rule {
	applying, _ := t.applying(rules, port, inputs)
	return catchAllsLast(applying.All())
}

// catchAllsLast moves matches of all requests behind all other matches. The rules of a VirtualService that follow its
// first match of all requests are unreachable, and are left out.
func catchAllsLast(rules []vhost.Rule) []vhost.Rule {
	var specific, last []vhost.Rule
	ended := map[*model.VirtualService]bool{}
	for _, r := range rules {
		if !r.Applies() || ended[r.VirtualService] {
			continue
		}
		before, all := split(r)
		specific, last = append(specific, before...), append(last, all...)
		ended[r.VirtualService] = len(all) > 0
	}
	return append(specific, last...)
}

// split divides a rule at its first match of all requests. The result before has the rule with only the matches in
// front of that match. The result all has the rule with only that match. Without such a match, before has the whole
// rule. Each result has at most one rule.
func split(r vhost.Rule) (before, all []vhost.Rule) {
	matches := r.HTTP().GetMatch()
	if len(matches) == 0 {
		return nil, []vhost.Rule{r}
	}
	for i, m := range matches {
		if slices.Contains(r.Excluded.All(), i) || !virtualservice.CatchesAll(m) {
			continue
		}
		var behind, others []int
		for j := range matches {
			if j >= i || slices.Contains(r.Excluded.All(), j) {
				behind = append(behind, j)
			}
			if j != i {
				others = append(others, j)
			}
		}
		part := r
		if part.Excluded = indices.List(behind...); part.Applies() {
			before = []vhost.Rule{part}
		}
		part.Excluded = indices.List(others...)
		return before, []vhost.Rule{part}
	}
	return []vhost.Rule{r}, nil
}
