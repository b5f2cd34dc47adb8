package resolve

import (
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// set identifies records of one kind in one namespace. With a name it contains the record of that name. Without a name
// it contains all records that have the labels and whose names begin with the prefix.
type set struct {
	kind      model.Kind
	namespace string
	name      string
	labels    map[string]string // at least one label if there is no name
	prefix    string
	ofCluster bool   // the set contains only records of one cluster
	cluster   string // name of this cluster; empty for the config cluster
}

// setKey is the key of sets in the index of a Resolver. It contains the name, or the first label in alphabetical order.
type setKey struct {
	kind            model.Kind
	namespace, name string
	label, value    string
}

// key returns the key of the set in the index.
func (s set) key() setKey {
	k := setKey{kind: s.kind, namespace: s.namespace, name: s.name}
	if s.name == "" {
		k.label = slices.Min(slices.Collect(maps.Keys(s.labels)))
		k.value = s.labels[k.label]
	}
	return k
}

// has reports whether a record belongs to the set.
func (s set) has(r model.Record) bool {
	key := r.Meta().Key
	if key.Kind != s.kind || key.Namespace != s.namespace || s.ofCluster && key.Origin.Cluster() != s.cluster {
		return false
	}
	return s.name == key.Name || s.name == "" && strings.HasPrefix(key.Name, s.prefix) && includes(labelsOf(r), s.labels)
}

// labelsOf returns the labels of a record that sets compare. Only Workloads have such labels.
func labelsOf(r model.Record) map[string]string {
	if w, ok := r.(*model.Workload); ok {
		return w.Spec.GetEndpoint().GetLabels()
	}
	return nil
}

// includes reports whether labels contain all entries of a selector.
func includes(labels, selector map[string]string) bool {
	for k, v := range selector {
		if has, ok := labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// dependency is one row of the table of dependencies. The function units adds to the map touched the units that an edit
// of a record affects. A unit is the resolution of one record that refers to other records.
type dependency struct {
	name  string
	units func(r *Resolver, e mirror.Edit, touched map[model.Key]bool)
}

// dependencies is the table of dependencies. For each kind of records, it contains the units that are resolved again
// after an edit of a record. Both the old and the new record count, because an edit may add and remove labels.
var dependencies = [model.NumKinds][]dependency{
	model.KindVirtualService: {
		{"itself", itself},                           // the edit may change its delegates
		{"roots", readers(model.KindVirtualService)}, // VirtualServices that delegate to it
	},
	model.KindServiceEntry: {
		{"itself", itself}, // the edit may change its workloadSelector or its ports
	},
	model.KindService: {
		{"itself", itself}, // the edit may change its selector or its ports
	},
	model.KindWorkload: {
		{"ServiceEntries", readers(model.KindServiceEntry)}, // the ServiceEntries that select it
		{"Services", readers(model.KindService)},            // the Services of its cluster that select it, if it is a WorkloadEntry
	},
}

// resolutions contains a function for each kind of records that may refer to sets of other records. The function
// resolves one record.
var resolutions = [model.NumKinds]resolution{
	model.KindVirtualService: mergeDelegates,
	model.KindServiceEntry:   selectEndpoints,
	model.KindService:        selectEndpoints,
}

// itself adds the unit of the edited record to the map touched.
func itself(_ *Resolver, e mirror.Edit, touched map[model.Key]bool) { touched[e.Key()] = true }

// readers returns a function that adds units of a kind to the map touched. These are the units that read a set to which
// the old or the new record belongs.
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

// touchReaders adds units of a kind to the map touched. These are the units that are listed at a key of the index and
// read a set with the record.
func (r *Resolver) touchReaders(kind model.Kind, of setKey, record model.Record, touched map[model.Key]bool) {
	contains := func(s set) bool { return s.has(record) }
	for key := range r.readers[of] {
		if key.Kind == kind && !touched[key] && slices.ContainsFunc(r.units[key].reads, contains) {
			touched[key] = true
		}
	}
}

// index adds the sets of a unit to the index. If delta is negative, it removes them.
func (r *Resolver) index(key model.Key, u *unit, delta int) {
	if u == nil {
		return
	}
	for _, of := range u.keys {
		if delta < 0 {
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
