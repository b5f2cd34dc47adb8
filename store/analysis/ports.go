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

// ofPorts gives the ports of workloads that a service sends to, and those of the service that are sent to others.
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

// targetOf is the port of the workloads that a port of a service is sent to; 0: they have a name for it, and Endpoints have the number.
func targetOf(p *model.ServicePort) uint32 {
	switch {
	case p.GetTargetNumber() != 0:
		return p.GetTargetNumber()
	case p.GetTargetName() != "":
		return 0
	}
	return p.GetNumber()
}

// ofEndpointPorts gives the ports that endpoints are reached at.
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

// ofIngressPorts gives the ports at which a Sidecar has its workloads take connections.
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

func portFact(kind factKind, namespace string, number uint32) fact {
	return fact{kind: kind, namespace: namespace, name: strconv.FormatUint(uint64(number), 10)}
}

// unservedPorts warns of ports of portLevelMtls at which no selected workload takes connections of a service. While none is selected nothing is said.
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
		text := fmt.Sprintf("no service of the selected workloads has target port %d: only connections to the addresses of the Pods themselves meet it", port)
		if svc, target := x.sentFrom(own, port); svc != nil {
			text += fmt.Sprintf("; %d is a port of %v, whose target port is %s", port, svc.Key, target)
		}
		x.found("", problem.NoEffect, fmt.Sprintf("spec.portLevelMtls[%d]", port), "%s", text)
	}
}

// served says whether a selected workload takes connections of a service, or of a Sidecar's listener, at a port.
func (x *examination) served(own selector, port uint32) bool {
	return slices.ContainsFunc(x.with(portFact(servedPort, own.namespace, port)), func(r model.Record) bool {
		if e, is := r.(*model.Endpoints); is {
			return slices.ContainsFunc(e.Spec.GetEndpoints(), func(e *model.Endpoint) bool { return model.Matches(own.labels, e.GetLabels()) })
		}
		return x.shares(own, r)
	})
}

// sentFrom finds a service of the selected workloads that has a port, and sends it to another of theirs, which it names; nil: there is none.
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

// shares says whether a record selects a workload that a selector of its namespace selects too.
func (x *examination) shares(own selector, r model.Record) bool {
	other, _ := selectorOf(r, "")
	both, ok := union(own.labels, other.labels)
	return ok && x.watch(own.namespace, both).count > 0
}
