package gateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// mostNamedPorts bounds the ports of listeners that one message names.
const mostNamedPorts = 5

// unboundPorts returns a warning for each list of ports of a policy without a port of the router's listeners. Policies
// without a selector and without targets apply to sidecars too, so they have no warning. One policy has at most
// problem.MostOfObject warnings.
func (f *Front) unboundPorts() (found []input.Problem) {
	bound := map[uint64]bool{}
	for _, s := range f.sockets {
		if s.Port != 0 {
			bound[uint64(s.Port)] = true
		}
	}
	if len(bound) == 0 {
		return nil
	}
	here := sync.OnceValue(f.boundPorts)
	for _, p := range f.edge.Policies.All() {
		m := model.Authorization(p)
		if len(m.GetSelector().GetMatchLabels())+len(m.GetTargetRefs()) == 0 && m.GetTargetRef() == nil {
			continue
		}
		fields := unboundFields(m, bound)
		for _, field := range fields[:min(len(fields), problem.MostOfObject)] {
			found = append(found, input.Warning(p.Key, problem.NoEffect, field, fmt.Sprintf("names no port at which the gateways of "+
				"namespace %s listen, so it matches nothing there: state the port of the Pod, not that of the Gateway's server (here %s)",
				f.Key.Edge.Value().Namespace, here())))
		}
	}
	return found
}

// unboundFields returns the paths of the lists of ports of a policy that lack all bound ports.
func unboundFields(m *securityv1.AuthorizationPolicy, bound map[uint64]bool) (fields []string) {
	unbound := func(ports []string) bool {
		return len(ports) > 0 && !slices.ContainsFunc(ports, func(port string) bool {
			n, err := strconv.ParseUint(port, 10, 16)
			return err != nil || bound[n]
		})
	}
	for i, rule := range m.GetRules() {
		for j, to := range rule.GetTo() {
			if unbound(to.GetOperation().GetPorts()) {
				fields = append(fields, fmt.Sprintf("spec.rules[%d].to[%d].operation.ports", i, j))
			}
		}
		for j, c := range rule.GetWhen() {
			if c.GetKey() == "destination.port" && unbound(c.GetValues()) {
				fields = append(fields, fmt.Sprintf("spec.rules[%d].when[%d].values", i, j))
			}
		}
	}
	return fields
}

// boundPorts describes the ports of the router's first listeners, such as "8080 for port 80".
func (f *Front) boundPorts() string {
	var texts []string
	for _, s := range f.sockets {
		if s.Port == 0 || s.quic {
			continue
		}
		text := strconv.Itoa(int(s.Port))
		for _, server := range append(slices.Clone(s.TLS), s.Plain...) {
			if stated := server.Spec().GetPort().GetNumber(); stated != s.Port {
				text += fmt.Sprintf(" for port %d", stated)
				break
			}
		}
		if slices.Contains(texts, text) {
			continue
		}
		if len(texts) == mostNamedPorts {
			return strings.Join(texts, ", ") + " and others"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
