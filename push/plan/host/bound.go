package host

import (
	"iter"
	"slices"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// BoundTo returns the VirtualServices that have http rules, list exactly this host or wildcard, and name the gateway
// ("namespace/name"). Only VirtualServices count that are exported to the namespace of the table's proxies. They are
// sorted by precedence (by exportTo and then by age, see the method precedes), the highest first. The result is nil
// without such VirtualServices.
func (t *Table) BoundTo(gateway, host string) (all []*model.VirtualService) {
	for r := range t.in.ByHost(model.KindVirtualService, host) {
		if vs := r.(*model.VirtualService); len(vs.Spec.GetHttp()) > 0 && t.sees(vs, gateway) {
			all = append(all, vs)
		}
	}
	return t.ordered(all)
}

// BoundGateways yields the names in the field gateways of the VirtualServices that have http rules and list exactly
// this host or wildcard. Names may repeat.
func (t *Table) BoundGateways(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for r := range t.in.ByHost(model.KindVirtualService, host) {
			spec := r.(*model.VirtualService).Spec
			if len(spec.GetHttp()) == 0 {
				continue
			}
			for _, gateway := range spec.GetGateways() {
				if !yield(gateway) {
					return
				}
			}
		}
	}
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
// exported to the namespace of the table's proxies. They are sorted by precedence.
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
// has the http rules (RulesFor) of all VirtualServices that are bound to the host, in order of precedence. BoundRoutes
// moves each match that matches all requests to the end, and splits a rule that also has other matches. It leaves out
// later rules of the same VirtualService, since no request reaches them (istio: pilot/pkg/networking/core/route,
// SortVHostRoutes). BoundRoutes appends problems to found. If no rule applies to the proxies that the Perspective
// selects, it returns false and does not change spec.
func (t *Table) BoundRoutes(spec *vhost.Spec, rules intern.List[vhost.Rule], as Perspective, found *[]input.Problem) bool {
	applying, applies := t.applying(rules, spec.Port, as.Inputs)
	if applies {
		t.resolve(spec, ruleLists.List(catchAllsLast(applying.All())...), as, true, found)
	}
	return applies
}

// BoundOrder returns the rules that BoundRoutes sets for a port and for proxies with the given inputs (properties such
// as labels), in the order of the routes. It returns nil if no rule applies.
func (t *Table) BoundOrder(rules intern.List[vhost.Rule], port uint32, inputs view.Inputs) []vhost.Rule {
	applying, _ := t.applying(rules, port, inputs)
	return catchAllsLast(applying.All())
}

// catchAllsLast moves the matches that match all requests behind all other matches. No request reaches the rules of a
// VirtualService after its first such match, so these rules are left out. Rules that do not apply are left out too.
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

// split divides a rule at its first match that matches all requests. The result named before has the rule with only the
// earlier matches. The result named all has the rule with only that match. Without such a match, the result named
// before has the whole rule. Each result has at most one rule.
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
