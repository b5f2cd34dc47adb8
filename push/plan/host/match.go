package host

import (
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// SourceMatch is the part of a match, of any protocol, that says where requests and connections come from.
type SourceMatch interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceNamespace() string
	GetSourceLabels() map[string]string
}

// Applies says whether a match is for proxies with certain inputs, and for requests or connections that arrive by a gateway
// at a port.
func (t *Table) Applies(vs *model.VirtualService, m SourceMatch, by Arrival, inputs view.Inputs) bool {
	return (m.GetPort() == 0 || m.GetPort() == by.Port) && virtualservice.MatchFor(vs, m.GetGateways(), by.Gateway) &&
		(m.GetSourceNamespace() == "" || m.GetSourceNamespace() == t.key.Namespace) && inputs.Match(m.GetSourceLabels())
}

// Arrival is how requests and connections reach a proxy.
type Arrival struct {
	Gateway string // that rules have to be for: virtualservice.Mesh, or namespace/name of a Gateway
	Port    uint32
}

// excluded lists the matches of the http rules that do not apply, in order. False: no rule applies.
func (t *Table) excluded(vs *model.VirtualService, by Arrival, inputs view.Inputs) (out []vhost.Match, applies bool) {
	for i, rule := range vs.Spec.GetHttp() {
		applies = applies || len(rule.GetMatch()) == 0
		for j, m := range rule.GetMatch() {
			if t.Applies(vs, m, by, inputs) {
				applies = true
			} else {
				out = append(out, vhost.Match{Rule: i, Match: j})
			}
		}
	}
	return out, applies
}
