package analysis

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// ofPorts returns the facts about the ports of a service with a selector. They are a fact servedPort for each target
// port with a number, and a fact servicePort for each port with a different target port.
func ofPorts(r model.Record) iter.Seq[fact] {
	svc := r.(*model.Service)
	if len(svc.Spec.GetSelector()) == 0 {
		return list()
	}
	return func(yield func(fact) bool) {
		for _, p := range svc.Spec.GetPorts() {
			target := targetOf(p)
			if target != 0 && !yield(portFact(servedPort, svc.Key.Namespace, target)) {
				return
			}
			if target != p.GetNumber() && !yield(portFact(servicePort, svc.Key.Namespace, p.GetNumber())) {
				return
			}
		}
	}
}

// targetOf returns the number of the target port of a service's port. It returns 0 if the target port has only a name.
// In this case each workload defines the number, and the Endpoints contain it.
func targetOf(p *model.ServicePort) uint32 {
	switch {
	case p.GetTargetNumber() != 0:
		return p.GetTargetNumber()
	case p.GetTargetName() != "":
		return 0
	}
	return p.GetNumber()
}

// ofEndpointPorts returns the facts about the ports of endpoints.
func ofEndpointPorts(r model.Record) iter.Seq[fact] {
	spec, namespace := r.(*model.Endpoints).Spec, r.Meta().Key.Namespace
	return func(yield func(fact) bool) {
		for _, p := range spec.GetPorts() {
			if !yield(portFact(servedPort, namespace, p.GetNumber())) {
				return
			}
		}
		seen := map[uint32]bool{}
		for _, e := range spec.GetEndpoints() {
			for _, number := range e.GetPorts() {
				if !seen[number] && !yield(portFact(servedPort, namespace, number)) {
					return
				}
				seen[number] = true
			}
		}
	}
}

// ofIngressPorts returns the facts about the ports of the ingress listeners of a Sidecar.
func ofIngressPorts(r model.Record) iter.Seq[fact] {
	sidecar := r.(*model.Sidecar)
	return func(yield func(fact) bool) {
		for _, l := range sidecar.Spec.GetIngress() {
			if !yield(portFact(servedPort, sidecar.Key.Namespace, l.GetPort().GetNumber())) {
				return
			}
		}
	}
}

// portFact returns the fact of a port number in a namespace.
func portFact(kind factKind, namespace string, number uint32) fact {
	return fact{kind: kind, namespace: namespace, name: strconv.FormatUint(uint64(number), 10)}
}

// unservedPorts warns of a port in portLevelMtls if no service sends requests to this port of a selected workload.
// Listeners of a Sidecar and ports of Endpoints count like services. A policy without a selector, or one that selects
// no workload, gets no warning.
func unservedPorts(x *examination) {
	policy := x.record.(*model.Policy)
	own, applies := selectorOf(policy, "")
	if !applies || len(own.labels) == 0 {
		return
	}
	_, ports := model.PeerModes(policy)
	if len(ports) == 0 || x.watch(own.namespace, own.labels).count == 0 {
		return
	}
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		if x.served(own, port) {
			continue
		}
		text := fmt.Sprintf("no service of the selected workloads has target port %d: "+
			"only connections to the addresses of the Pods themselves meet it", port)
		if svc, target := x.sentFrom(own, port); svc != nil {
			text += fmt.Sprintf("; %d is a port of %v, whose target port is %s", port, svc.Key, target)
		}
		x.found("", problem.NoEffect, fmt.Sprintf("spec.portLevelMtls[%d]", port), "%s", text)
	}
}

// served reports whether a service, Endpoints or a listener of a Sidecar uses a port of a selected workload.
func (x *examination) served(own selector, port uint32) bool {
	return slices.ContainsFunc(x.with(portFact(servedPort, own.namespace, port)), func(r model.Record) bool {
		if e, is := r.(*model.Endpoints); is {
			return slices.ContainsFunc(e.Spec.GetEndpoints(), func(e *model.Endpoint) bool { return model.Matches(own.labels, e.GetLabels()) })
		}
		return x.shares(own, r)
	})
}

// sentFrom returns a service of the selected workloads that has this port with another target port, and the number or
// name of the target port. It returns nil if there is no such service.
func (x *examination) sentFrom(own selector, port uint32) (*model.Service, string) {
	for _, r := range x.with(portFact(servicePort, own.namespace, port)) {
		if svc := r.(*model.Service); x.shares(own, r) {
			p := portOf(svc, port)
			if p.GetTargetNumber() != 0 {
				return svc, strconv.FormatUint(uint64(p.GetTargetNumber()), 10)
			}
			return svc, p.GetTargetName()
		}
	}
	return nil, ""
}

// shares reports whether a workload matches both the selector own and the selector of the record r in the same
// namespace.
func (x *examination) shares(own selector, r model.Record) bool {
	other, _ := selectorOf(r, "")
	both, ok := union(own.labels, other.labels)
	return ok && x.watch(own.namespace, both).count > 0
}
