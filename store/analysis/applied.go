package analysis

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Known finds records by kind, namespace, and the hosts that they name; wildcards are literal there. A snapshot does.
type Known interface {
	Mesh() *model.Mesh
	All(kind model.Kind) iter.Seq[model.Record]
	In(kind model.Kind, namespace string) iter.Seq[model.Record]
	ByHost(kind model.Kind, host string) iter.Seq[model.Record]
}

// Applied lists the warnings of a record that is about to be stored beside those known, in place of the one of its key. It looks at what the record names,
// and at its namespace; not for workloads that a selector or a subset is for, which mostly come later.
func Applied(r model.Record, known Known) []object.Problem {
	x := &examination{unit: &unit{record: r}, known: known}
	x.look(examiners[r.Meta().Key.Kind])
	return x.problems
}

// scan finds the records that give a fact, the oldest first, without that of a key.
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

// candidates are the records of a kind that may give a fact.
func candidates(known Known, kind model.Kind, f fact) iter.Seq[model.Record] {
	if f.of != model.KindInvalid && f.of != kind {
		return func(func(model.Record) bool) {}
	}
	switch f.kind {
	case gatewayOfName, withSelector, withoutSelector, servedPort, servicePort:
		return known.In(kind, f.namespace)
	case serviceOfHost, ownEntry, kubeService, ruleOfHost, ownRule, endpointsOfHost, meshRoute:
	}
	return known.ByHost(kind, f.name)
}

// selects counts the workloads that a selector matches in a namespace, empty: in all; one is enough.
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
