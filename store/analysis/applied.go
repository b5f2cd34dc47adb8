package analysis

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Known returns the records of one consistent state, for Applied. mirror.Snapshot implements it.
type Known interface {
	Mesh() *model.Mesh                                           // the mesh configuration, never nil
	All(kind model.Kind) iter.Seq[model.Record]                  // all records of a kind
	In(kind model.Kind, namespace string) iter.Seq[model.Record] // the records of one namespace
	ByHost(kind model.Kind, host string) iter.Seq[model.Record]  // the records that name exactly this host or wildcard
}

// Applied returns the warnings about the record r, which is not stored yet. It compares r with the records in known.
// There are at most 50 warnings. The result is nil if there are no warnings. A known record with the key of r is
// ignored. Warnings of missing or unready workloads are left out, since workloads usually appear later. The Location of
// the warnings is empty.
func Applied(r model.Record, known Known) []object.Problem {
	x := &examination{unit: &unit{record: r}, known: known, gave: map[given]bool{}}
	x.run(examiners[r.Meta().Key.Kind])
	return x.problems
}

// scan returns the known records that have the fact f, the oldest first, without the examined record.
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

// given identifies a record, and those of its facts that are equal except for the name.
type given struct {
	key  model.Key
	fact fact // without name
}

// gives reports whether the record r has the fact f. If f is a fact about a host, r must name this host. A record has
// such a fact for all of its hosts or for no host. So the result for one host is stored, and serves all hosts. Two
// objects may have thousands of hosts in common.
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

// givesAny reports whether a record has a fact for which the function property returns true.
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

// candidates returns known records of one kind, among them all that have the fact f.
func candidates(known Known, kind model.Kind, f fact) iter.Seq[model.Record] {
	if f.of != model.KindInvalid && f.of != kind {
		return func(func(model.Record) bool) {}
	}
	if !f.byHost() {
		return known.In(kind, f.namespace)
	}
	return known.ByHost(kind, f.name)
}

// selects returns 1 if a workload of the namespace matches the selector in the parameter labels. If not, it returns 0.
// An empty namespace stands for all namespaces.
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
