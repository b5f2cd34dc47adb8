package resolve

import (
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// set is records of one kind in one namespace: the one of a name, or, without a name, all that have the labels, and whose names begin
// with a prefix. They are of any cluster, or of one alone.
type set struct {
	kind      model.Kind
	namespace string
	name      string
	labels    map[string]string // at least one where there is no name
	prefix    string
	ofCluster bool   // of cluster alone
	cluster   string // as origins have it
}

// setKey is what a set is found by: its name, or the first of its labels.
type setKey struct {
	kind            model.Kind
	namespace, name string
	label, value    string
}

func (s set) key() setKey {
	k := setKey{kind: s.kind, namespace: s.namespace, name: s.name}
	if s.name == "" {
		k.label = slices.Min(slices.Collect(maps.Keys(s.labels)))
		k.value = s.labels[k.label]
	}
	return k
}

// has says whether a record is in the set.
func (s set) has(r model.Record) bool {
	key := r.Meta().Key
	if key.Kind != s.kind || key.Namespace != s.namespace || s.ofCluster && key.Origin.Cluster() != s.cluster {
		return false
	}
	return s.name == key.Name || s.name == "" && strings.HasPrefix(key.Name, s.prefix) && includes(labelsOf(r), s.labels)
}

// labelsOf are the labels that sets pick a record by.
func labelsOf(r model.Record) map[string]string {
	if w, ok := r.(*model.Workload); ok {
		return w.Spec.GetEndpoint().GetLabels()
	}
	return nil
}

func includes(labels, selector map[string]string) bool {
	for k, v := range selector {
		if has, ok := labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// dependency is one row of the table of dependencies: which units an edit of a record touches.
type dependency struct {
	name  string
	units func(r *Resolver, e mirror.Edit, touched map[model.Key]bool)
}

// dependencies says which records are resolved again when a record is another. Both the old and the new record count: labels and
// selectors shrink as well as grow.
var dependencies = [model.NumKinds][]dependency{
	model.KindVirtualService: {
		{"itself", itself},                           // its delegates
		{"roots", readers(model.KindVirtualService)}, // those that delegate to it
	},
	model.KindServiceEntry: {
		{"itself", itself}, // its workloadSelector, its ports
	},
	model.KindService: {
		{"itself", itself}, // its selector, its ports
	},
	model.KindWorkload: {
		{"ServiceEntries", readers(model.KindServiceEntry)}, // that select it
		{"Services", readers(model.KindService)},            // of its cluster that select it, where it is a WorkloadEntry
	},
}

// resolutions are how records of a kind that may refer by set are resolved.
var resolutions = [model.NumKinds]resolution{
	model.KindVirtualService: delegating,
	model.KindServiceEntry:   selecting,
	model.KindService:        selecting,
}

// itself: the record, as one that refers by set.
func itself(_ *Resolver, e mirror.Edit, touched map[model.Key]bool) { touched[e.Key()] = true }

// readers: the units of a kind that read a set which the record is in, or was.
func readers(kind model.Kind) func(*Resolver, mirror.Edit, map[model.Key]bool) {
	return func(r *Resolver, e mirror.Edit, touched map[model.Key]bool) {
		for _, record := range []model.Record{e.Old, e.New} {
			if record == nil {
				continue
			}
			at := record.Meta().Key
			r.touchReaders(kind, setKey{kind: at.Kind, namespace: at.Namespace, name: at.Name}, record, touched)
			for label, value := range labelsOf(record) {
				r.touchReaders(kind, setKey{kind: at.Kind, namespace: at.Namespace, label: label, value: value}, record, touched)
			}
		}
	}
}

func (r *Resolver) touchReaders(kind model.Kind, of setKey, record model.Record, touched map[model.Key]bool) {
	for key := range r.readers[of] {
		if key.Kind == kind && !touched[key] && slices.ContainsFunc(r.units[key].reads, func(s set) bool { return s.has(record) }) {
			touched[key] = true
		}
	}
}

// index enlists what a unit reads, or takes it out.
func (r *Resolver) index(key model.Key, u *unit, by int) {
	if u == nil {
		return
	}
	for _, of := range u.keys {
		if by < 0 {
			if delete(r.readers[of], key); len(r.readers[of]) == 0 {
				delete(r.readers, of)
			}
			continue
		}
		if r.readers[of] == nil {
			r.readers[of] = map[model.Key]struct{}{}
		}
		r.readers[of][key] = struct{}{}
	}
}
