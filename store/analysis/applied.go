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
	x := &examination{unit: &unit{record: r}, known: known, gave: map[given]bool{}}
	x.run(examiners[r.Meta().Key.Kind])
	return x.problems
}

// scan returns the known records that give a fact, the oldest first, without the examined record.
func (x *examination) scan(f fact) (all []model.Record) {
	for kind, gives := range givers {
		if len(gives) == 0 {
			continue
		}
		for r := range candidates(x.known, model.Kind(kind), f) {
			if r.Meta().Key != x.record.Meta().Key && x.gives(r, f) {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b model.Record) int { return a.Meta().Older(b.Meta()) })
	return all
}

// given identifies the facts of one record that differ in their names alone.
type given struct {
	key  model.Key
	fact fact // without name
}

// gives reports whether a candidate gives a fact. Two objects may have thousands of hosts in common. So the facts of a
// record that names the fact's host are read once for all of its hosts.
func (x *examination) gives(r model.Record, f fact) bool {
	if !f.byHost() {
		return givesAny(r, func(g fact) bool { return g == f })
	}
	f.name = ""
	one := given{r.Meta().Key, f}
	is, known := x.gave[one]
	if !known {
		is = givesAny(r, func(g fact) bool { g.name = ""; return g == f })
		x.gave[one] = is
	}
	return is
}

// givesAny reports whether a record gives a fact with a property.
func givesAny(r model.Record, property func(fact) bool) bool {
	for _, give := range givers[r.Meta().Key.Kind] {
		for g := range give(r) {
			if property(g) {
				return true
			}
		}
	}
	return false
}

// candidates returns a superset of the known records of a kind that give a fact.
func candidates(known Known, kind model.Kind, f fact) iter.Seq[model.Record] {
	if f.of != model.KindInvalid && f.of != kind {
		return func(func(model.Record) bool) {}
	}
	if !f.byHost() {
		return known.In(kind, f.namespace)
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
