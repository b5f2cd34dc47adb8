package analysis

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Known finds records of a consistent state, for Applied. mirror.Snapshot implements it.
type Known interface {
	Mesh() *model.Mesh                                           // the mesh configuration, never nil
	All(kind model.Kind) iter.Seq[model.Record]                  // all records of a kind
	In(kind model.Kind, namespace string) iter.Seq[model.Record] // the records of one namespace
	ByHost(kind model.Kind, host string) iter.Seq[model.Record]  // the records that name exactly this host or wildcard
}

// Applied returns the warnings about a record that is not stored yet, given the known records, at most 50. The result
// is nil without warnings. A known record of the same key is ignored. Warnings of missing or unready workloads are left
// out, since workloads usually appear later. The Location of the warnings is empty.
func Applied(r model.Record, known Known) []object.Problem {
	x := &examination{unit: &unit{record: r}, known: known}
	x.run(examiners[r.Meta().Key.Kind])
	return x.problems
}

// scan returns the known records that give a fact, the oldest first, without the record of one key.
func scan(known Known, f fact, without model.Key) (all []model.Record) {
	for kind, gives := range givers {
		for _, give := range gives {
			for r := range candidates(known, model.Kind(kind), f) {
				if r.Meta().Key != without && slices.Contains(slices.Collect(give(r)), f) {
					all = append(all, r)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b model.Record) int { return a.Meta().Older(b.Meta()) })
	return all
}

// candidates returns a superset of the known records of a kind that give a fact.
func candidates(known Known, kind model.Kind, f fact) iter.Seq[model.Record] {
	if f.of != model.KindInvalid && f.of != kind {
		return func(func(model.Record) bool) {}
	}
	switch f.kind {
	case gatewayOfName, withSelector, withoutSelector, servedPort, servicePort:
		return known.In(kind, f.namespace)
	case serviceOfHost, ownEntry, kubeService, ruleOfHost, ownRule, endpointsOfHost, meshRoute, readyHost, knownEndpoints:
	}
	return known.ByHost(kind, f.name)
}

// selects returns 1 if a selector matches a workload in a namespace (empty: in any), and otherwise 0.
func selects(known Known, namespace string, labels map[string]string) int {
	in := known.In(model.KindWorkload, namespace)
	if namespace == "" {
		in = known.All(model.KindWorkload)
	}
	for r := range in {
		if model.Matches(labels, r.(*model.Workload).Spec.GetEndpoint().GetLabels()) {
			return 1
		}
	}
	return 0
}
