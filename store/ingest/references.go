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

// SecretUse names a Secret that a record makes workloads use.
type SecretUse struct {
	Namespace string            // of these workloads; empty: of any
	Name      string            // of the Secret
	Selector  map[string]string // labels of these workloads; empty: all
	Of        string            // namespace of the Secret; empty: that of the workload
}

// references finds the Secrets that are used: those that a record names for workloads that exist. Workloads of another
// cluster use Secrets of their own cluster and of the config cluster, as with istiod (istio:
// pilot/pkg/credentials/kube/multicluster.go, ForCluster). Records go into replace; find makes found. The inventory
// owns it.
type references struct {
	usesOf func(r model.Record, root string) []SecretUse // nil: found is not needed
	uses   map[model.Key]use
	sets   map[workloads]*labelled
	root   string // the root namespace of uses
	dirty  bool   // found is out of date
	found  []object.Reference
}

type use struct {
	record model.Record
	all    []SecretUse
}

// workloads names the workloads of a place that have the same labels.
type workloads struct {
	place
	labels string
}

// place is a namespace of a cluster.
type place struct{ cluster, namespace string }

type labelled struct {
	labels map[string]string
	n      int
}

func newReferences(usesOf func(model.Record, string) []SecretUse) *references {
	return &references{usesOf: usesOf, uses: map[model.Key]use{}, sets: map[workloads]*labelled{}}
}

// replace follows an object whose records change. The new records come first, so that labels that stay do not make
// found out of date.
func (f *references) replace(before, after []model.Record) {
	if f.usesOf == nil {
		return
	}
	for _, r := range after {
		if w, is := r.(*model.Workload); is {
			f.count(w, 1)
		} else if all := f.usesOf(r, f.root); len(all) > 0 || r.Meta().Key.Kind == model.KindEnvoyFilter {
			// The reach of an EnvoyFilter depends on the root namespace.
			f.uses[r.Meta().Key] = use{r, all}
			f.dirty = true
		}
	}
	for _, r := range before {
		if w, is := r.(*model.Workload); is {
			f.count(w, -1)
		} else if key := r.Meta().Key; f.uses[key].record == r {
			delete(f.uses, key)
			f.dirty = true
		}
	}
}

// count follows a workload that comes (1), or goes (-1).
func (f *references) count(w *model.Workload, n int) {
	labels := w.Spec.GetEndpoint().GetLabels()
	id := workloads{place{w.Key.Origin.Cluster(), w.Key.Namespace}, textOf(labels)}
	set := f.sets[id]
	if set == nil {
		set = &labelled{labels: labels}
		f.sets[id], f.dirty = set, true
	}
	if set.n += n; set.n <= 0 {
		delete(f.sets, id)
		f.dirty = true
	}
}

// find makes found, and reports whether it changed.
func (f *references) find(root string) bool {
	if root != f.root {
		f.root, f.dirty = root, true
		for key, u := range f.uses {
			f.uses[key] = use{u.record, f.usesOf(u.record, root)}
		}
	}
	if !f.dirty {
		return false
	}
	f.dirty = false
	by := map[object.ID]object.ID{} // Secret -> the first that refers to it
	reach := map[string][]place{}   // selector -> places of what it selects
	refer := func(cluster, namespace, name string, from object.ID) {
		to := object.ID{Kind: "Secret", Namespace: namespace, Name: name}
		if cluster != "" {
			to.Origin = origin.New(cluster, origin.Kube)
		}
		if have, known := by[to]; !known || from.Compare(have) < 0 {
			by[to] = from
		}
	}
	for key, u := range f.uses {
		from := normal.SourceObject(key)
		for _, one := range u.all {
			for _, at := range f.reach(reach, one) {
				namespace := cmp.Or(one.Of, at.namespace)
				refer(at.cluster, namespace, one.Name, from)
				refer("", namespace, one.Name, from)
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

// reach returns the places of the workloads that use a Secret. known caches places by selector.
func (f *references) reach(known map[string][]place, one SecretUse) []place {
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

// textOf returns a text that is equal for equal labels, and only for these.
func textOf(labels map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		text.WriteString(strconv.Quote(key) + strconv.Quote(labels[key]))
	}
	return text.String()
}
