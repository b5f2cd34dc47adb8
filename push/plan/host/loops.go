package host

import (
	"fmt"
	"maps"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// A request that a router (the Envoy of a gateway) sends to itself is routed again, and may return for ever. Envoy ends
// such a loop only when the header x-forwarded-for, which grows at each hop, exceeds the size limit for headers.

// ServicePort is a port of a Service.
type ServicePort struct {
	Host string
	Port uint32
}

// SetListening sets the ports at which the router's listeners receive requests. The map bound has the ports of the
// router's Pods. The map own has the ports of the Services that forward to these Pods. Destinations that lead back to
// these ports are refused. The map own must not be changed afterwards. Without Form.Guarded, SetListening has no
// effect.
func (t *Table) SetListening(bound map[uint32]bool, own map[ServicePort]bool) {
	if t.guard == nil {
		return
	}
	t.guard.listening, t.guard.returning = maps.Clone(bound), own
	for of := range own {
		t.guard.listening[of.Port] = true
	}
}

// Returns reports whether requests to a port of a host return to a listener of the router. It is false without
// Form.Guarded.
func (t *Table) Returns(host string, port uint32) bool {
	return t.guard != nil && t.guard.returning[ServicePort{host, port}]
}

// returns reports, by the port alone, whether requests to a member (an endpoint) of a service may return to a listener
// of the router. The result is false for Services with a selector, since their endpoints are in their own namespace.
func (g *guard) returns(svc *model.Service, port uint32) bool {
	stated := svc.Key.Kind == model.KindServiceEntry || len(svc.Spec.GetSelector()) == 0
	return stated && g.listening[port]
}

// circular reports whether a destination's cluster returns requests to the router. If so, it appends a problem of the
// first rule that sends requests to the destination.
func (t *Table) circular(spec *vhost.Spec, to xds.ClusterName, ref virtualservice.Ref, found *[]input.Problem) bool {
	if !t.Returns(to.Host, to.Port) {
		return false
	}
	for _, r := range spec.Rules.All() {
		if r.Applies() && virtualservice.RuleSendsTo(r.HTTP(), ref) {
			field := fmt.Sprintf("spec.http[%d]", r.Index)
			*found = append(*found, Circular(r.VirtualService.Key, field, to, "requests to it are answered 503"))
			break
		}
	}
	return true
}

// Circular returns the problem of a rule that sends requests back to the router. The parameter outcome states, for the
// message, how such requests end.
func Circular(key model.Key, field string, to xds.ClusterName, outcome string) input.Problem {
	return input.Problem{Key: key, Field: field, Code: problem.NotAllowed, Severity: problem.Error,
		Message: fmt.Sprintf("destination %s, port %d, is the gateway itself, which would route its own requests again; %s; %s",
			to.Host, to.Port, outcome, allowed)}
}
