package analysis

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/model"
)

// fact is something that records give and others read.
type fact struct {
	kind      factKind
	of        model.Kind // where several kinds give facts of one kind that are read apart
	namespace string
	name      string
}

type factKind uint8

// The facts.
const (
	serviceOfHost   factKind = iota // name: a host of a Service or ServiceEntry, wildcards as they are written
	ownEntry                        // the same of a ServiceEntry, in a namespace
	kubeService                     // name: the host of a Service
	ruleOfHost                      // name: the host of a DestinationRule
	ownRule                         // the same without a workloadSelector, in a namespace
	endpointsOfHost                 // name: a host that Endpoints are of
	meshRoute                       // name: a host of a VirtualService with http rules for the mesh's sidecars
	gatewayOfName                   // a Gateway by namespace and name
	withSelector                    // a record of a kind in a namespace that selects workloads by labels
	withoutSelector                 // one that is for all of them
	servedPort                      // name: a port of workloads in a namespace that a service, or a Sidecar's listener, is for
	servicePort                     // name: a port of a service in a namespace, which has another one at its workloads
)

// ranked says whether a fact is read for the oldest records that give it, maxCompared at most (examination.older).
func (f fact) ranked() bool {
	return f.kind == ownEntry || f.kind == ownRule || f.kind == meshRoute || f.kind == withSelector || f.kind == withoutSelector
}

// giver lists facts of a record.
type giver func(model.Record) iter.Seq[fact]

// givers says which facts the records of each kind give. A record whose facts stay, and which is another one, touches their readers all the same.
var givers = [model.NumKinds][]giver{
	model.KindService:            {ofService, ofPorts},
	model.KindServiceEntry:       {ofService, ofPorts},
	model.KindEndpoints:          {ofEndpoints, ofEndpointPorts},
	model.KindVirtualService:     {ofVirtualService},
	model.KindDestinationRule:    {ofRule},
	model.KindGateway:            {ofGateway},
	model.KindSidecar:            {ofSelecting, ofIngressPorts},
	model.KindTelemetry:          {ofSelecting},
	model.KindPeerAuthentication: {ofSelecting},
}

func list(facts ...fact) iter.Seq[fact] { return slices.Values(facts) }

func ofService(r model.Record) iter.Seq[fact] {
	svc := r.(*model.Service)
	return func(yield func(fact) bool) {
		for _, host := range svc.Spec.GetHosts() {
			by := fact{kind: kubeService, name: host}
			if svc.Key.Kind == model.KindServiceEntry {
				by = fact{kind: ownEntry, namespace: svc.Key.Namespace, name: host}
			}
			if !yield(fact{kind: serviceOfHost, name: host}) || !yield(by) {
				return
			}
		}
	}
}

func ofEndpoints(r model.Record) iter.Seq[fact] {
	return named(endpointsOfHost, r.(*model.Endpoints).Spec.GetHosts())
}

func ofVirtualService(r model.Record) iter.Seq[fact] {
	vs := r.(*model.VirtualService)
	if !rulesForMesh(vs) {
		return list()
	}
	return named(meshRoute, vs.Spec.GetHosts())
}

func named(kind factKind, names []string) iter.Seq[fact] {
	return func(yield func(fact) bool) {
		for _, name := range names {
			if !yield(fact{kind: kind, name: name}) {
				return
			}
		}
	}
}

func ofRule(r model.Record) iter.Seq[fact] {
	rule := r.(*model.DestinationRule)
	host := fact{kind: ruleOfHost, name: rule.Spec.GetHost()}
	if rule.Spec.GetWorkloadSelector() != nil {
		return list(host)
	}
	return list(host, fact{kind: ownRule, namespace: rule.Key.Namespace, name: rule.Spec.GetHost()})
}

func ofGateway(r model.Record) iter.Seq[fact] {
	key := r.Meta().Key
	return list(fact{kind: gatewayOfName, namespace: key.Namespace, name: key.Name})
}

func ofSelecting(r model.Record) iter.Seq[fact] {
	kind, key := withoutSelector, r.Meta().Key
	s, applies := selectorOf(r, "")
	if !applies {
		return list()
	}
	if len(s.labels) > 0 {
		kind = withSelector
	}
	return list(fact{kind: kind, of: key.Kind, namespace: key.Namespace})
}
