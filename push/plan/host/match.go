package host

import (
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// SourceMatch is what matches of VirtualServices, of all protocols, say of where requests come from.
type SourceMatch interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceNamespace() string
	GetSourceLabels() map[string]string
}

// Applies says whether a match is for proxies with certain inputs, and for what comes to a port.
func (t *Table) Applies(vs *model.VirtualService, m SourceMatch, port uint32, inputs view.Inputs) bool {
	return (m.GetPort() == 0 || m.GetPort() == port) && virtualservice.ForSidecars(vs, m.GetGateways()) &&
		(m.GetSourceNamespace() == "" || m.GetSourceNamespace() == t.key.Namespace) && inputs.Match(m.GetSourceLabels())
}

// excluded lists the matches of the http rules that do not apply, in order. False: no rule applies.
func (t *Table) excluded(vs *model.VirtualService, port uint32, inputs view.Inputs) (out []vhost.Match, applies bool) {
	for i, rule := range vs.Spec.GetHttp() {
		applies = applies || len(rule.GetMatch()) == 0
		for j, m := range rule.GetMatch() {
			if t.Applies(vs, m, port, inputs) {
				applies = true
			} else {
				out = append(out, vhost.Match{Rule: i, Match: j})
			}
		}
	}
	return out, applies
}
