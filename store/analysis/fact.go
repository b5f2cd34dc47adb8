package analysis

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/model"
)

// fact is a property of records that an examination of other records can read. A record that has the property gives the
// fact.
type fact struct {
	kind      factKind
	of        model.Kind // kind of the records that have the fact; only for withSelector and withoutSelector
	namespace string
	name      string
}

// factKind is the type of a fact.
type factKind uint8

// The types of facts, with the content of the fields name and namespace of fact.
const (
	serviceOfHost   factKind = iota // name: a host of a Service or ServiceEntry, wildcards literally
	ownEntry                        // name: a host of a ServiceEntry; namespace: of the entry
	kubeService                     // name: the host of a Service
	ruleOfHost                      // name: the host of a DestinationRule
	ownRule                         // name: the host of a DestinationRule without workloadSelector; namespace: of the rule
	endpointsOfHost                 // name: a host of Endpoints
	meshRoute                       // name: a host of a VirtualService with http rules for sidecars
	gatewayOfName                   // namespace and name of a Gateway
	withSelector                    // namespace: of a record that selects workloads by labels; of: the record's kind
	withoutSelector                 // namespace: of a record that applies to all workloads; of: the record's kind
	servedPort                      // name: a workload port that a service, Endpoints or a Sidecar uses; namespace: of the record
	servicePort                     // name: number of a service port with a different target port; namespace: of the service
	readyHost                       // name: a host with a ready endpoint
	knownEndpoints                  // namespace of an EndpointSlice
)

// counted reports whether readers need to know only whether a record with the fact exists.
func (f fact) counted() bool { return f.kind == readyHost || f.kind == knownEndpoints }

// byHost reports whether every record that has the fact also names a host (model.HostsOf). The record can be found by
// this host. A record has facts of such a kind for all of its hosts or for no host.
func (f fact) byHost() bool {
	switch f.kind {
	case gatewayOfName, withSelector, withoutSelector, servedPort, servicePort:
		return false
	case serviceOfHost, ownEntry, kubeService, ruleOfHost, ownRule, endpointsOfHost, meshRoute, readyHost, knownEndpoints:
	}
	return true
}

// ranked reports whether only the maxCompared oldest records with a fact are read (examination.older).
func (f fact) ranked() bool {
	return f.kind == ownEntry || f.kind == ownRule || f.kind == meshRoute || f.kind == withSelector || f.kind == withoutSelector
}

// giver is a function that returns facts of a record.
type giver func(model.Record) iter.Seq[fact]

// givers lists the functions that return the facts of the records of each kind. After an edit of a record, the readers
// of its facts are examined again even if the facts stay the same. This does not apply to counted facts (fact.counted).
var givers = [model.NumKinds][]giver{
	model.KindService:            {ofService, ofPorts},
	model.KindServiceEntry:       {ofService, ofPorts},
	model.KindEndpoints:          {ofEndpoints, ofEndpointPorts, ofReadyEndpoints},
	model.KindVirtualService:     {ofVirtualService},
	model.KindDestinationRule:    {ofRule},
	model.KindGateway:            {ofGateway},
	model.KindSidecar:            {ofSelecting, ofIngressPorts},
	model.KindTelemetry:          {ofSelecting},
	model.KindPeerAuthentication: {ofSelecting},
}

// list returns the given facts as a sequence.
func list(facts ...fact) iter.Seq[fact] { return slices.Values(facts) }

// ofService returns the facts about the hosts of a Service or ServiceEntry.
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

// ofEndpoints returns the facts about the hosts of Endpoints.
func ofEndpoints(r model.Record) iter.Seq[fact] {
	return named(endpointsOfHost, r.(*model.Endpoints).Spec.GetHosts())
}

// ofVirtualService returns the facts about the hosts of a VirtualService with http rules for sidecars.
func ofVirtualService(r model.Record) iter.Seq[fact] {
	vs := r.(*model.VirtualService)
	if !rulesForMesh(vs) {
		return list()
	}
	return named(meshRoute, vs.Spec.GetHosts())
}

// named returns one fact of a kind for each name.
func named(kind factKind, names []string) iter.Seq[fact] {
	return func(yield func(fact) bool) {
		for _, name := range names {
			if !yield(fact{kind: kind, name: name}) {
				return
			}
		}
	}
}

// ofRule returns the facts about the host of a DestinationRule.
func ofRule(r model.Record) iter.Seq[fact] {
	rule := r.(*model.DestinationRule)
	host := fact{kind: ruleOfHost, name: rule.Spec.GetHost()}
	if rule.Spec.GetWorkloadSelector() != nil {
		return list(host)
	}
	return list(host, fact{kind: ownRule, namespace: rule.Key.Namespace, name: rule.Spec.GetHost()})
}

// ofGateway returns the fact about the name of a Gateway.
func ofGateway(r model.Record) iter.Seq[fact] {
	key := r.Meta().Key
	return list(fact{kind: gatewayOfName, namespace: key.Namespace, name: key.Name})
}

// ofSelecting returns the fact that a record selects workloads by labels, or that it applies to all workloads of its
// namespace.
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
