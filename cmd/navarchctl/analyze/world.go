package analyze

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Origin is the origin in the IDs of all analysed objects of the config cluster, whether from files or from its API
// server. An object from a file thus has the same ID as the object in the cluster that it replaces. Origin must not be
// changed.
var Origin = origin.New("", origin.Files)

// world indexes the objects and records of one analysis, and collects its findings.
type world struct {
	Config
	unread      map[string]string
	fromCluster map[string]bool
	byKind      map[kind][]*object.Object
	byID        map[object.ID]*object.Object
	ids         map[string]object.ID         // result of idsByName; nil before its first call
	stands      map[object.ID]*object.Object // original objects, by the ID of the object that standIn added for them
	made        []object.Event               // the added objects
	address     netip.Addr                   // the last address of nextAddress
	records     map[model.Kind][]model.Record
	byKey       map[model.Key]model.Record
	known       *mirror.Snapshot               // the records, resolved
	converted   func() []object.Problem        // waits for the problems of the conversion to records
	refused     map[object.ID][]object.Problem // the problems for which the webhook refuses an object
	pods        []*pod
	inhabited   map[string]bool // namespaces with Pods, or with templates of Pods
	// spaces contains the labels of each namespace whose object was read, by the name of the namespace.
	spaces    map[string]map[string]string
	hooks     []hook
	injectors map[string]*injectorValues // by the name of their ConfigMap
	routers   []*router
	reported  []Reported
	patches   []inspect.Patch
	planned   []model.Problem // the problems that planProxies found
	findings  []Finding
}

// kind identifies a kind of objects.
type kind struct{ group, kind string }

// pod is a Pod, or the template of a workload.
type pod struct {
	object *object.Object // the Pod, or the workload
	meta   object.ID      // kind, namespace and name of the object
	real   bool           // true for a Pod, false for a template
	labels map[string]string
	notes  map[string]string // annotations
	spec   corev1.PodSpec
	ended  bool
	ready  bool
	ip     string
	owned  bool   // a workload made the Pod
	stand  string // name of the Pod that standIn added for a template; empty: no Pod was added
}

// index indexes the objects. Of two objects with the same ID, the later one counts.
func index(in Input, c Config) *world {
	w := &world{Config: c, unread: in.Unread, fromCluster: in.Cluster, reported: in.Reported, patches: in.Patches,
		byKind: map[kind][]*object.Object{},
		byID:   make(map[object.ID]*object.Object, len(in.Events)),
		stands: map[object.ID]*object.Object{}, records: map[model.Kind][]model.Record{}, byKey: map[model.Key]model.Record{},
		spaces: map[string]map[string]string{}}
	for _, e := range in.Events {
		if e.Op == object.Put {
			w.byID[e.ID] = e.Object
		}
	}
	for id, o := range w.byID {
		at := kind{id.Group, id.Kind}
		w.byKind[at] = append(w.byKind[at], o)
	}
	for _, all := range w.byKind {
		slices.SortFunc(all, func(a, b *object.Object) int { return a.ID.Compare(b.ID) })
	}
	for _, o := range w.byKind[kind{"", "Namespace"}] {
		w.spaces[o.ID.Name] = o.Labels
	}
	w.pods, w.inhabited = w.findPods(), map[string]bool{}
	for _, p := range w.pods {
		w.inhabited[p.meta.Namespace] = true
	}
	w.hooks, w.injectors = w.findHooks(), w.findInjectors()
	w.standIn()
	return w
}

// setRecords indexes the records.
func (w *world) setRecords(all []model.Record) {
	for _, r := range all {
		key := r.Meta().Key
		w.records[key.Kind] = append(w.records[key.Kind], r)
		w.byKey[key] = r
	}
}

// each yields the records of a kind, as type R.
func each[R model.Record](w *world, of model.Kind) iter.Seq[R] {
	return func(yield func(R) bool) {
		for _, r := range w.records[of] {
			if typed, is := r.(R); is && !yield(typed) {
				return
			}
		}
	}
}

// chunk is the number of objects that decoded decodes at a time.
const chunk = 1000

// decoded yields the objects of a kind, decoded on all cores. It leaves out an object that does not decode, and adds a
// finding for this object.
func decoded[T any](w *world, group, of string) iter.Seq2[*object.Object, *T] {
	return func(yield func(*object.Object, *T) bool) {
		for some := range slices.Chunk(w.byKind[kind{group, of}], chunk) {
			into, errs := make([]T, len(some)), make([]error, len(some))
			loop.Each(len(some), func(i int) { errs[i] = decode(some[i], &into[i]) })
			for i, o := range some {
				if err := errs[i]; err != nil {
					w.add(object.Problem{ID: o.ID, Location: o.Location, Code: problem.Invalid, Severity: problem.Error,
						Message: err.Error()}, "")
				} else if !yield(o, &into[i]) {
					return
				}
			}
		}
	}
}

// decode decodes an object. Field names match in upper and lower case, as in encoding/json.
func decode(o *object.Object, into any) error { return json.Unmarshal(o.JSON, into) }

// id returns the ID of an object of the config cluster.
func (w *world) id(group, kind, namespace, name string) object.ID {
	return object.ID{Origin: Origin, Group: group, Kind: kind, Namespace: namespace, Name: name}
}

// live reports whether objects of a kind were requested from a cluster.
func (w *world) live(kind string) bool { return w.fromCluster[kind] }

// knows reports whether all objects of the kinds were read.
func (w *world) knows(kinds ...string) bool {
	return !slices.ContainsFunc(kinds, func(of string) bool { return w.unread[of] != "" })
}

// location returns the location of an object in files. It is empty if the object comes from a cluster or is unknown.
func (w *world) location(id object.ID) string {
	if o := w.byID[id]; o != nil {
		return o.Location
	}
	return ""
}

// found adds a finding about an object.
func (w *world) found(code problem.Analyzer, id object.ID, field, format string, args ...any) {
	w.add(object.Problem{ID: id, Field: field, Message: fmt.Sprintf(format, args...), Location: w.location(id)}, code)
}

// foundRecord adds a finding about the object that a record was made from.
func (w *world) foundRecord(code problem.Analyzer, r model.Record, field, format string, args ...any) {
	w.found(code, normal.SourceObject(r.Meta().Key), field, format, args...)
}

// ofSystem reports whether a namespace belongs to Kubernetes or to the control plane.
func (w *world) ofSystem(namespace string) bool {
	return namespace == w.SystemNamespace || slices.Contains([]string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"},
		namespace)
}
