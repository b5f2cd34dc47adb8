package ingest

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// SecretUse is the use of a Secret or ConfigMap by workloads, as stated by one record.
type SecretUse struct {
	Namespace string            // namespace of these workloads; empty: any
	Name      string            // name of the Secret or ConfigMap
	Selector  map[string]string // labels of these workloads; empty: all workloads
	Of        string            // namespace of the Secret or ConfigMap; empty (for Secrets only): the workload's namespace
	ConfigMap bool              // Name names a ConfigMap of the config cluster
	Gateways  bool              // the workloads are those selected by any Gateway; Selector is empty
	Field     string            // field of the record with the name; may be empty
}

// references computes the Secrets and ConfigMaps that existing workloads use, according to the applied records.
// Workloads of another cluster use Secrets of their own cluster and of the config cluster, as in istiod (istio:
// pilot/pkg/credentials/kube/multicluster.go, ForCluster). The method replace receives changed records, and find
// computes the field found. The inventory owns the references.
type references struct {
	usesOf   func(r model.Record, root string) []SecretUse // nil: found is not needed
	uses     map[model.Key]use                             // records with uses
	gateways map[string]selection                          // selectors of Gateways, by the result of textOf
	sets     map[workloads]*labelled                       // numbers of workloads, by place and labels
	root     string                                        // root namespace for which the field uses was computed
	outdated bool                                          // found has to be computed again
	moved    bool                                          // the result of inventory.misused may be outdated
	found    []object.Reference                            // sorted by target
}

// use is a record with its uses of Secrets.
type use struct {
	record model.Record
	all    []SecretUse
}

// workloads identifies the workloads of a place that have the same labels.
type workloads struct {
	place
	labels string
}

// selection is a selector of Gateways.
type selection struct {
	labels map[string]string
	n      int // number of Gateways
}

// place is a namespace of a cluster.
type place struct{ cluster, namespace string }

// labelled counts the workloads with a set of labels.
type labelled struct {
	labels map[string]string
	n      int
}

// newReferences returns references without records. The function usesOf returns the uses of a record in a mesh with the
// given root namespace. If it is nil, uses are not tracked.
func newReferences(usesOf func(model.Record, string) []SecretUse) *references {
	return &references{usesOf: usesOf, uses: map[model.Key]use{}, gateways: map[string]selection{}, sets: map[workloads]*labelled{}}
}

// replace applies the change of an object's records. The new records are counted first, so unchanged labels do not
// mark the field found as outdated.
func (f *references) replace(before, after []model.Record) {
	if f.usesOf == nil {
		return
	}
	for _, r := range after {
		f.countGateway(r, 1)
		if w, is := r.(*model.Workload); is {
			f.count(w, 1)
		} else if all := f.usesOf(r, f.root); len(all) > 0 || r.Meta().Key.Kind == model.KindEnvoyFilter {
			// EnvoyFilters are kept even without uses, since their reach depends on the root namespace.
			f.uses[r.Meta().Key] = use{r, all}
			f.change()
		}
	}
	for _, r := range before {
		f.countGateway(r, -1)
		if w, is := r.(*model.Workload); is {
			f.count(w, -1)
		} else if key := r.Meta().Key; f.uses[key].record == r {
			delete(f.uses, key)
			f.change()
		}
	}
}

// change marks the field found, and the result of inventory.misused, as outdated.
func (f *references) change() { f.outdated, f.moved = true, true }

// countGateway adds n (1 or -1) to the number of Gateways with the selector of r, if r is a Gateway.
func (f *references) countGateway(r model.Record, n int) {
	g, is := r.(*model.Gateway)
	if !is {
		return
	}
	text := textOf(g.Spec.GetSelector())
	s := f.gateways[text]
	if s.labels = g.Spec.GetSelector(); s.n == 0 {
		f.change()
	}
	if s.n += n; s.n > 0 {
		f.gateways[text] = s
		return
	}
	delete(f.gateways, text)
	f.change()
}

// count adds n (1 or -1) to the number of workloads with the labels of w.
func (f *references) count(w *model.Workload, n int) {
	labels := w.Spec.GetEndpoint().GetLabels()
	id := workloads{place{w.Key.Origin.Cluster(), w.Key.Namespace}, textOf(labels)}
	set := f.sets[id]
	if set == nil {
		set = &labelled{labels: labels}
		f.sets[id] = set
		f.change()
	}
	if set.n += n; set.n <= 0 {
		delete(f.sets, id)
		f.change()
	}
}

// find updates the field found, and reports whether its value changed. The parameter root is the root namespace of the
// mesh.
func (f *references) find(root string) bool {
	if root != f.root {
		f.root = root
		f.change()
		for key, u := range f.uses {
			f.uses[key] = use{u.record, f.usesOf(u.record, root)}
		}
	}
	if !f.outdated {
		return false
	}
	f.outdated = false
	by := map[object.ID]object.ID{} // Secret or ConfigMap -> the first object that uses it
	reach := map[string][]place{}   // selector -> places of the selected workloads
	for key, u := range f.uses {
		from := normal.SourceObject(key)
		for _, one := range u.all {
			for _, to := range f.targets(reach, one) {
				if have, known := by[to]; !known || from.Compare(have) < 0 {
					by[to] = from
				}
			}
		}
	}
	found := make([]object.Reference, 0, len(by))
	for to, from := range by {
		found = append(found, object.Reference{To: to, By: from})
	}
	slices.SortFunc(found, func(a, b object.Reference) int { return a.To.Compare(b.To) })
	if slices.Equal(found, f.found) {
		return false
	}
	f.found = found
	return true
}

// targets returns the Secrets or the ConfigMap of a use, or nil if the use has no workloads. The map reach caches
// places by selector.
func (f *references) targets(reach map[string][]place, one SecretUse) (all []object.ID) {
	places := f.reach(reach, one)
	if one.ConfigMap {
		if len(places) == 0 {
			return nil
		}
		return []object.ID{{Kind: "ConfigMap", Namespace: one.Of, Name: one.Name}}
	}
	for _, at := range places {
		to := object.ID{Kind: "Secret", Namespace: cmp.Or(one.Of, at.namespace), Name: one.Name}
		all = append(all, to)
		if at.cluster != "" {
			to.Origin = origin.New(at.cluster, origin.Kube)
			all = append(all, to)
		}
	}
	return all
}

// reach returns the places of the workloads of a use, in no order. The map known caches places by selector.
func (f *references) reach(known map[string][]place, one SecretUse) []place {
	if one.Gateways {
		return slices.DeleteFunc(slices.Clone(f.gatewayPlaces(known)), func(at place) bool {
			return one.Namespace != "" && at.namespace != one.Namespace
		})
	}
	text := one.Namespace + "/" + textOf(one.Selector)
	all, is := known[text]
	if is {
		return all
	}
	places := map[place]bool{}
	for id, set := range f.sets {
		if (one.Namespace == "" || one.Namespace == id.namespace) && !places[id.place] && model.Matches(one.Selector, set.labels) {
			places[id.place] = true
		}
	}
	all = slices.Collect(maps.Keys(places))
	known[text] = all
	return all
}

// gatewayPlaces returns the places of the workloads selected by any Gateway, in no order.
func (f *references) gatewayPlaces(known map[string][]place) []place {
	const text = "gateways" // differs from other keys of the cache by the missing slash
	all, is := known[text]
	if is {
		return all
	}
	places := map[place]bool{}
	for _, s := range f.gateways {
		for _, at := range f.reach(known, SecretUse{Selector: s.labels}) {
			places[at] = true
		}
	}
	all = slices.Collect(maps.Keys(places))
	known[text] = all
	return all
}

// textOf encodes labels as a text. Equal labels, and only these, have equal texts.
func textOf(labels map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		text.WriteString(strconv.Quote(key) + strconv.Quote(labels[key]))
	}
	return text.String()
}
