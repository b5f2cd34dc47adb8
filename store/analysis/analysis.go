// Package analysis finds valid objects that have no effect, in whole or in part, because of other objects. Examples are
// references to missing objects, selectors that match no workload, and objects that another object overrides. All
// findings are warnings. Problems that are visible in one object alone are reported by store/normal.
//
// A record is the stored form of an object. An examination finds the problems of one record. A fact is a property of a
// record, such as a host (fact.go). Each examination stores the facts of other records that it read, and the selectors
// that it watches (selectors.go). After an edit, a record is examined again if its examination read a fact that the
// edited record has before or after the edit. It is also examined again if a selector that it watches gained its first
// workload or lost its last workload.
//
// Owns: an index of the records by their facts; the findings.
// Reads: records, as edits.
// Never: reads a clock, the store, or the configuration that proxies received.
package analysis

import (
	"iter"
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/smallset"
)

// The maximum number of findings of one record, and of records with which one record is compared. These bounds limit
// the work if a user creates thousands of objects for one host or one selector.
const (
	maxProblems = 50
	maxCompared = 20
)

// Settings has the settings of the control plane that affect findings.
type Settings struct {
	OwnGateways bool // Gateways apply to workloads of their own namespace only (PILOT_SCOPE_GATEWAY_TO_NAMESPACE)
	// Locate returns the location of an object, for findings; nil: findings have no location.
	Locate func(object.ID) string
}

// Edit is a change of one record. Old is nil for an added record, New is nil for a removed record.
type Edit struct{ Old, New model.Record }

// key returns the key of the edited record.
func (e Edit) key() model.Key {
	if e.New != nil {
		return e.New.Meta().Key
	}
	return e.Old.Meta().Key
}

// Analysis contains the findings about a set of records, and updates the findings by edits. It is not safe for
// concurrent use, and must not be used after a panic. It keeps the records, which must not change.
type Analysis struct {
	settings Settings
	root     string                            // root namespace of the mesh, whose policies apply to all namespaces
	givenBy  map[fact][]model.Record           // by fact: the records that have the fact, the oldest first
	readers  map[fact]*smallset.Set[model.Key] // by fact: keys of the records whose examination read the fact
	present  map[fact]int                      // by fact: number of the records that have it; only for facts with fact.counted
	watches  watches
	units    map[model.Key]*unit // examined records that read a fact or watch a selector
	// Findings that ended and that began since the last call of Changes.
	gone, come []object.Problem
	// Examined counts the examinations of records since New.
	Examined uint64
}

// unit is one examined record with its findings, and with the facts and selectors on which the findings depend.
type unit struct {
	record   model.Record
	reads    []fact
	watches  []*watch
	problems []object.Problem
}

// New returns an Analysis without records.
func New(settings Settings) *Analysis {
	return &Analysis{settings: settings, root: model.DefaultMesh().Spec.GetRootNamespace(), givenBy: map[fact][]model.Record{},
		readers: map[fact]*smallset.Set[model.Key]{}, present: map[fact]int{},
		watches: newWatches(), units: map[model.Key]*unit{}}
}

// Of returns an Analysis of the given records.
func Of(settings Settings, records iter.Seq[model.Record]) *Analysis {
	var edits []Edit
	for r := range records {
		if Reads(r.Meta().Key.Kind) {
			edits = append(edits, Edit{New: r})
		}
	}
	a := New(settings)
	a.givenBy, a.readers = make(map[fact][]model.Record, 2*len(edits)), make(map[fact]*smallset.Set[model.Key], len(edits))
	a.Step(edits)
	return a
}

// Reads reports whether records of a kind affect findings. Edits of other kinds may be omitted.
func Reads(kind model.Kind) bool {
	return kind == model.KindMesh || kind == model.KindWorkload || len(givers[kind]) > 0 || examined(kind)
}

// examined reports whether records of a kind are examined. Records of other kinds have no findings.
func examined(kind model.Kind) bool { return len(examiners[kind])+len(later[kind]) > 0 }

// Step applies edits, at most one for each record, and examines the affected records. In each edit, Old must be the
// record after the previous Steps, or nil if there was no such record.
func (a *Analysis) Step(edits []Edit) {
	touched, next := map[model.Key]bool{}, map[model.Key]model.Record{}
	counts := map[fact]int{}
	for _, e := range edits {
		switch key := e.key(); {
		case key.Kind == model.KindWorkload:
		case key.Kind == model.KindMesh:
			a.setRoot(e.New, touched)
		default:
			if examined(key.Kind) {
				next[key], touched[key] = e.New, true
			}
			a.index(e.Old, false, touched, counts)
			a.index(e.New, true, touched, counts)
		}
	}
	a.count(counts, touched)
	a.renew(touched, next)
	// Edits of workloads come last. All watches exist now, and each edit updates their counts, so no search of all
	// workloads is needed.
	touched = map[model.Key]bool{}
	for _, e := range edits {
		if e.key().Kind == model.KindWorkload {
			a.watches.edit(e, touched)
		}
	}
	a.renew(touched, nil)
}

// setRoot applies the root namespace of the mesh configuration. Selectors in the root namespace match workloads of all
// namespaces.
func (a *Analysis) setRoot(r model.Record, touched map[model.Key]bool) {
	mesh, is := r.(*model.Mesh)
	if !is {
		mesh = model.DefaultMesh()
	}
	if root := mesh.Spec.GetRootNamespace(); root != a.root {
		a.root = root
		for key, u := range a.units {
			if len(u.watches) > 0 {
				touched[key] = true
			}
		}
	}
}

// index adds the record r to the index if the parameter added is true, and else removes r. It adds the readers of r's
// facts to touched. It adds changes of counted facts to counts.
func (a *Analysis) index(r model.Record, added bool, touched map[model.Key]bool, counts map[fact]int) {
	if r == nil {
		return
	}
	for _, give := range givers[r.Meta().Key.Kind] {
		for f := range give(r) {
			if f.counted() {
				counts[f] += map[bool]int{true: 1, false: -1}[added]
				continue
			}
			all := a.givenBy[f]
			at, has := slices.BinarySearchFunc(all, r, func(a, b model.Record) int { return a.Meta().Older(b.Meta()) })
			switch {
			case added && !has:
				all = slices.Insert(all, at, r)
			case !added && has:
				all = slices.Delete(all, at, at+1)
			}
			if a.givenBy[f] = all; len(all) == 0 {
				delete(a.givenBy, f)
			}
			if f.ranked() && at >= maxCompared {
				continue // readers read only the first maxCompared records
			}
			for key := range a.readers[f].All() {
				touched[key] = true
			}
		}
	}
}

// count applies changes of counted facts. If a fact gained its first record or lost its last record, count adds the
// readers of the fact to touched.
func (a *Analysis) count(changes map[fact]int, touched map[model.Key]bool) {
	for f, by := range changes {
		was := a.present[f]
		now := was + by
		if a.present[f] = now; now == 0 {
			delete(a.present, f)
		}
		if (was > 0) == (now > 0) {
			continue
		}
		for key := range a.readers[f].All() {
			touched[key] = true
		}
	}
}

// renew examines the records in touched again. The argument next has the edited records in their new state, or nil for
// a removed record.
func (a *Analysis) renew(touched map[model.Key]bool, next map[model.Key]model.Record) {
	for key := range touched {
		old := a.units[key]
		record, edited := next[key]
		if !edited && old != nil {
			record = old.record
		}
		u := a.examine(record)
		for _, f := range u.reads {
			if a.readers[f] == nil {
				a.readers[f] = &smallset.Set[model.Key]{}
			}
			a.readers[f].Add(key)
		}
		for _, w := range u.watches {
			w.readers.Add(key)
		}
		if old != nil {
			a.forget(key, old, u)
		}
		a.list(old, u)
		if delete(a.units, key); len(u.reads)+len(u.watches) > 0 {
			a.units[key] = u
		}
	}
}

// forget removes a record from the readers of those facts and watches that its new examination does not need.
func (a *Analysis) forget(key model.Key, old, now *unit) {
	reads, watched := map[fact]bool{}, map[*watch]bool{}
	for _, f := range now.reads {
		reads[f] = true
	}
	for _, w := range now.watches {
		watched[w] = true
	}
	for _, f := range old.reads {
		if !reads[f] && a.readers[f].Remove(key) {
			delete(a.readers, f)
		}
	}
	for _, w := range old.watches {
		if !watched[w] {
			a.watches.drop(w, key)
		}
	}
}

// examine examines a record. For nil it returns a unit without findings.
func (a *Analysis) examine(record model.Record) *unit {
	x := &examination{unit: &unit{record: record}, of: a, read: map[fact]bool{}, watched: map[*watch]bool{}}
	if record == nil {
		return x.unit
	}
	if kind := record.Meta().Key.Kind; examined(kind) {
		a.Examined++
		x.run(examiners[kind])
		x.run(later[kind])
		a.locate(x.problems)
	}
	x.reads, x.watches = slices.Clip(slices.Collect(maps.Keys(x.read))), slices.Clip(slices.Collect(maps.Keys(x.watched)))
	return x.unit
}

// Problems returns the findings in the order of normal.CompareProblems, at most 50 for each record. The caller owns the
// list.
func (a *Analysis) Problems() []object.Problem {
	all := []object.Problem{}
	for _, u := range a.units {
		all = append(all, u.problems...)
	}
	slices.SortFunc(all, normal.CompareProblems)
	return all
}

// Changes returns the findings that ended and those that began since the last call, in no order. A finding that both
// ended and began is in both lists. The caller owns the lists.
func (a *Analysis) Changes() (gone, come []object.Problem) {
	gone, come, a.gone, a.come = a.gone, a.come, nil, nil
	return gone, come
}

// Relocate determines the location of a record's findings again.
func (a *Analysis) Relocate(key model.Key) {
	old := a.units[key]
	if old == nil || len(old.problems) == 0 {
		return
	}
	u := *old
	u.problems = slices.Clone(u.problems)
	a.locate(u.problems)
	a.list(old, &u)
	a.units[key] = &u
}

// locate sets the locations of findings.
func (a *Analysis) locate(problems []object.Problem) {
	if a.settings.Locate == nil {
		return
	}
	for i, p := range problems {
		problems[i].Location = a.settings.Locate(p.ID)
	}
}

// list reports the findings of a record if they differ from those of the previous examination. The argument old may be
// nil.
func (a *Analysis) list(old, now *unit) {
	if old == nil {
		old = &unit{}
	}
	if !slices.Equal(old.problems, now.problems) {
		a.gone, a.come = append(a.gone, old.problems...), append(a.come, now.problems...)
	}
}

// examination is the examination of one record in progress.
type examination struct {
	*unit
	of      *Analysis
	read    map[fact]bool   // facts that were read so far
	watched map[*watch]bool // selectors watched so far
	known   Known           // source of records for Applied; nil if the index of the Analysis is used
	gave    map[given]bool  // results of the method gives; nil if the index is used
}

// run runs examiners one after the other.
func (x *examination) run(all []func(*examination)) {
	for _, one := range all {
		one(x)
	}
}

// with returns the records that have the fact f, the oldest first.
func (x *examination) with(f fact) []model.Record {
	if x.known != nil {
		return x.scan(f)
	}
	x.read[f] = true
	return x.of.givenBy[f]
}

// has reports whether any record has the counted fact f.
func (x *examination) has(f fact) bool {
	x.read[f] = true
	return x.of.present[f] > 0
}

// found adds a finding about the examined record, up to maxProblems. In args, an object of another namespace must have
// the type model.Other.
func (x *examination) found(analyzer problem.Analyzer, code problem.Code, field, format string, args ...any) {
	if len(x.problems) < maxProblems {
		key := x.record.Meta().Key
		shown, whole := model.Messages(key.Namespace, format, args...)
		x.problems = append(x.problems, object.Problem{ID: normal.SourceObject(key), Field: field, Code: code, Analyzer: analyzer,
			Severity: problem.Warning, Message: shown, Whole: whole})
	}
}

// examiners lists the checks for each kind that compare a record with other configuration.
var examiners = [model.NumKinds][]func(*examination){
	model.KindVirtualService:     {unknownDestinations, sharedHosts, unknownGateways, unreadRules},
	model.KindDestinationRule:    {unknownHost, ruledHost},
	model.KindServiceEntry:       {sharedHost, otherProtocol},
	model.KindSidecar:            {general, overlapping},
	model.KindTelemetry:          {general, overlapping},
	model.KindPeerAuthentication: {general, overlapping, unservedPorts},
}

// later lists the checks for each kind that warn of missing or unready workloads. Applied omits these checks, since
// workloads usually appear after their configuration.
var later = [model.NumKinds][]func(*examination){
	model.KindVirtualService:        {unreadyDestinations, hiddenRoutes},
	model.KindDestinationRule:       {emptySubsets, unselected},
	model.KindServiceEntry:          {unselected},
	model.KindSidecar:               {unselected},
	model.KindTelemetry:             {unselected, untargeted},
	model.KindPeerAuthentication:    {unselected},
	model.KindAuthorizationPolicy:   {unselected, untargeted},
	model.KindRequestAuthentication: {unselected, untargeted},
	model.KindEnvoyFilter:           {unselected, untargeted},
	model.KindWasmPlugin:            {unselected, untargeted},
	model.KindTrafficExtension:      {unselected, untargeted},
	model.KindProxyConfig:           {unselected},
	model.KindGateway:               {unselected},
}
