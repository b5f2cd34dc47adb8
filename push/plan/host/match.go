package host

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// SourceMatch is the common part of a VirtualService's http, tls and tcp matches, with the conditions on port, gateway
// and source.
type SourceMatch interface {
	GetPort() uint32                    // the port of the traffic; 0: any port
	GetGateways() []string              // overrides the gateways of the VirtualService; empty: no override
	GetSourceNamespace() string         // the namespace of the proxies; "": any namespace
	GetSourceLabels() map[string]string // labels that the proxies must have; empty: any proxies
}

// Arrival names the gateway and port at which requests and connections reach a proxy.
type Arrival struct {
	Gateway string // virtualservice.Mesh, or namespace/name of a Gateway
	Port    uint32 // compared with the port of a match
}

// Applies reports whether a match of a VirtualService can match traffic that arrives at a gateway and port, for the
// table's proxies with the given inputs (properties such as labels). It compares port, gateways, sourceNamespace and
// sourceLabels.
func (t *Table) Applies(vs *model.VirtualService, m SourceMatch, by Arrival, inputs view.Inputs) bool {
	return virtualservice.MatchFor(vs, m.GetGateways(), by.Gateway) && t.admits(m, by.Port, inputs)
}

// admits reports whether a match applies to a port and to proxies with the given inputs. It ignores gateways.
func (t *Table) admits(m SourceMatch, port uint32, inputs view.Inputs) bool {
	return (m.GetPort() == 0 || m.GetPort() == port) &&
		(m.GetSourceNamespace() == "" || m.GetSourceNamespace() == t.key.Namespace) && inputs.Match(m.GetSourceLabels())
}

var (
	ruleLists intern.Table[vhost.Rule]
	indices   intern.Table[int]
)

// RulesFor returns all http rules of a VirtualService for a gateway, in order. The field Excluded of a rule lists its
// matches that do not apply to the gateway. If it lists all matches, the rule does not apply (vhost.Rule.Applies). The
// result is empty if vs is nil.
func RulesFor(vs *model.VirtualService, gateway string) intern.List[vhost.Rule] {
	if vs == nil {
		return intern.List[vhost.Rule]{}
	}
	rules := make([]vhost.Rule, 0, len(vs.Spec.GetHttp()))
	for i := range vs.Spec.GetHttp() {
		r := vhost.Rule{VirtualService: vs, Index: i}
		rules = append(rules, excluding(r, func(m *networkingv1.HTTPMatchRequest) bool {
			return !virtualservice.MatchFor(vs, m.GetGateways(), gateway)
		}))
	}
	return ruleLists.List(rules...)
}

// applying returns the rules with more excluded matches: the matches for other ports or other proxies are added to
// Rule.Excluded. The second result is true if at least one rule still applies.
func (t *Table) applying(of intern.List[vhost.Rule], port uint32, inputs view.Inputs) (list intern.List[vhost.Rule], applies bool) {
	var rules []vhost.Rule // nil while the list is unchanged
	for i, r := range of.All() {
		next := excluding(r, func(m *networkingv1.HTTPMatchRequest) bool { return !t.admits(m, port, inputs) })
		if next != r {
			if rules == nil {
				rules = slices.Clone(of.All())
			}
			rules[i] = next
		}
		applies = applies || next.Applies()
	}
	if rules == nil {
		return of, applies
	}
	return ruleLists.List(rules...), applies
}

// excluding adds the matches for which the predicate returns true to the rule's list Excluded, and returns the
// resulting rule.
func excluding(r vhost.Rule, excludes func(*networkingv1.HTTPMatchRequest) bool) vhost.Rule {
	var more []int
	for j, m := range r.HTTP().GetMatch() {
		if slices.Contains(r.Excluded.All(), j) || excludes(m) {
			more = append(more, j)
		}
	}
	if len(more) > r.Excluded.Len() {
		r.Excluded = indices.List(more...)
	}
	return r
}
