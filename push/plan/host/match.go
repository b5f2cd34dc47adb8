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

// SourceMatch is the part of a match, of any protocol, that says where requests and connections come from.
type SourceMatch interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceNamespace() string
	GetSourceLabels() map[string]string
}

// Arrival names the gateway and port by which requests and connections reach a proxy.
type Arrival struct {
	Gateway string // that rules have to be for: virtualservice.Mesh, or namespace/name of a Gateway
	Port    uint32
}

// Applies says whether a match is for such arrivals at proxies with certain inputs.
func (t *Table) Applies(vs *model.VirtualService, m SourceMatch, by Arrival, inputs view.Inputs) bool {
	return virtualservice.MatchFor(vs, m.GetGateways(), by.Gateway) && t.admits(m, by.Port, inputs)
}

// admits is Applies, whatever the gateway.
func (t *Table) admits(m SourceMatch, port uint32, inputs view.Inputs) bool {
	return (m.GetPort() == 0 || m.GetPort() == port) &&
		(m.GetSourceNamespace() == "" || m.GetSourceNamespace() == t.key.Namespace) && inputs.Match(m.GetSourceLabels())
}

var (
	ruleLists intern.Table[vhost.Rule]
	indices   intern.Table[int]
)

// RulesFor lists the http rules of a VirtualService, in order. Matches that are not for the gateway are excluded. A nil
// VirtualService has no rules.
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

// applying excludes the matches of rules that are not for proxies with certain inputs, or not for the port. False: no
// rule applies.
func (t *Table) applying(of intern.List[vhost.Rule], port uint32, inputs view.Inputs) (list intern.List[vhost.Rule], applies bool) {
	var rules []vhost.Rule // nil: the list as it is
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

// excluding returns a rule with further matches excluded.
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
