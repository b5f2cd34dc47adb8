// Package analysis finds objects that are valid and yet have no effect, in whole or in part, because of other objects: references to what does
// not exist, selectors without a workload, objects that another one overrides. All findings are warnings: the object applies as far as it can.
// Problems that one object alone shows are store/normal's.
//
// Each record that can have such warnings is examined by itself. The facts about others that it reads are noted as it reads them (fact.go says
// which facts each record gives), and so are the selectors that it watches (selectors.go). After an edit, those records are examined again
// that read a fact of the edited record, before or after the edit, or that watch a selector which got its first workload by the edit, or lost
// its last one.
//
// Owns: an index of the records by their facts, what was found.  Reads: records, as edits.  Never: a clock, the store, what proxies have.
package analysis

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/smallset"
)

// Bounds of what is said of one record, and of what one is compared with: whoever makes thousands of objects for one host, or with one selector, has their
// first ones compared.
const (
	maxProblems = 50
	maxCompared = 20
)

// Edit is one record that is another one. Old is nil where it was added, New where it was removed.
type Edit struct{ Old, New model.Record }

func (e Edit) key() model.Key {
	if e.New != nil {
		return e.New.Meta().Key
	}
	return e.Old.Meta().Key
}

// Analysis follows records by their edits. It belongs to one goroutine. One that has panicked is not to be used any more.
type Analysis struct {
	root    string // namespace whose policies are for all
	holders map[fact][]model.Record
	readers map[fact]*smallset.Set[model.Key]
	watches watches
	units   map[model.Key]*unit
	sorted  []object.Problem // nil: to be made
	// Examined counts examinations of records: the work done so far.
	Examined uint64
}

// unit is one record with what was found.
type unit struct {
	record   model.Record
	reads    []fact
	watches  []*watch
	problems []object.Problem
}

// New knows no records.
func New() *Analysis {
	return &Analysis{root: model.DefaultMesh().Spec.GetRootNamespace(), holders: map[fact][]model.Record{}, readers: map[fact]*smallset.Set[model.Key]{},
		watches: newWatches(), units: map[model.Key]*unit{}}
}

// Of analyses records from scratch.
func Of(records iter.Seq[model.Record]) *Analysis {
	var edits []Edit
	for r := range records {
		if Reads(r.Meta().Key.Kind) {
			edits = append(edits, Edit{New: r})
		}
	}
	a := New()
	a.Step(edits)
	return a
}

// Reads says whether records of a kind matter here. Edits of others may be left out.
func Reads(kind model.Kind) bool {
	return kind == model.KindMesh || kind == model.KindWorkload || len(givers[kind])+len(examiners[kind])+len(later[kind]) > 0
}

// Step takes edits, of each record one; Old is what the step before made of it.
func (a *Analysis) Step(edits []Edit) {
	touched, next := map[model.Key]bool{}, make(map[model.Key]model.Record, len(edits))
	for _, e := range edits {
		switch key := e.key(); {
		case key.Kind == model.KindWorkload:
		case key.Kind == model.KindMesh:
			a.setRoot(e.New, touched)
		default:
			next[key], touched[key] = e.New, true
			a.give(e.Old, false, touched)
			a.give(e.New, true, touched)
		}
	}
	a.renew(touched, next)
	// Watches are there by now, so that workloads are counted one by one and no watch has to look for them.
	touched = map[model.Key]bool{}
	for _, e := range edits {
		if e.key().Kind == model.KindWorkload {
			a.watches.edit(e, touched)
		}
	}
	a.renew(touched, nil)
}

// setRoot takes over the mesh's root namespace: selectors reach further there.
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

// give adds a record to the index, or takes it away, and touches who reads its facts.
func (a *Analysis) give(r model.Record, there bool, touched map[model.Key]bool) {
	if r == nil {
		return
	}
	for _, give := range givers[r.Meta().Key.Kind] {
		for f := range give(r) {
			all := a.holders[f]
			at, has := slices.BinarySearchFunc(all, r, func(a, b model.Record) int { return a.Meta().Older(b.Meta()) })
			switch {
			case there && !has:
				all = slices.Insert(all, at, r)
			case !there && has:
				all = slices.Delete(all, at, at+1)
			}
			if a.holders[f] = all; len(all) == 0 {
				delete(a.holders, f)
			}
			if f.ranked() && at >= maxCompared {
				continue // nobody looks so far
			}
			for key := range a.readers[f].All() {
				touched[key] = true
			}
		}
	}
}

// renew examines records again: those in next as they are there, nil gone, others as they were.
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
		if old == nil && len(u.problems) > 0 || old != nil && !slices.Equal(u.problems, old.problems) {
			a.sorted = nil
		}
		if delete(a.units, key); len(u.reads)+len(u.watches) > 0 {
			a.units[key] = u
		}
	}
}

// forget drops what a record read and watched, and does not any more.
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

// examine looks at a record; nil: there is none.
func (a *Analysis) examine(record model.Record) *unit {
	x := &examination{unit: &unit{record: record}, of: a, read: map[fact]bool{}, watched: map[*watch]bool{}}
	if record == nil {
		return x.unit
	}
	if kind := record.Meta().Key.Kind; len(examiners[kind])+len(later[kind]) > 0 {
		a.Examined++
		x.look(examiners[kind])
		x.look(later[kind])
	}
	x.reads, x.watches = slices.Clip(slices.Collect(maps.Keys(x.read))), slices.Clip(slices.Collect(maps.Keys(x.watched)))
	return x.unit
}

// Problems are the warnings, sorted, at most 50 of each object; Location is for the caller to fill in. The list is not changed any more, neither by the caller.
func (a *Analysis) Problems() []object.Problem {
	if a.sorted == nil {
		a.sorted = []object.Problem{}
		for _, u := range a.units {
			a.sorted = append(a.sorted, u.problems...)
		}
		slices.SortFunc(a.sorted, normal.CompareProblems)
	}
	return slices.Clip(a.sorted)
}

// examination is a record while it is looked at.
type examination struct {
	*unit
	of      *Analysis
	read    map[fact]bool
	watched map[*watch]bool
	known   Known // what is looked at in place of the index (Applied); nil: the index
}

func (x *examination) look(all []func(*examination)) {
	for _, look := range all {
		look(x)
	}
}

// with are the records that give a fact, the oldest first.
func (x *examination) with(f fact) []model.Record {
	if x.known != nil {
		return scan(x.known, f, x.record.Meta().Key)
	}
	x.read[f] = true
	return x.of.holders[f]
}

// found notes a warning.
func (x *examination) found(analyzer problem.Analyzer, code problem.Code, field, format string, args ...any) {
	if len(x.problems) < maxProblems {
		x.problems = append(x.problems, object.Problem{ID: normal.SourceObject(x.record.Meta().Key), Field: field, Code: code, Analyzer: analyzer,
			Severity: problem.Warning, Message: fmt.Sprintf(format, args...)})
	}
}

// examiners are what each kind is looked at for, by what it says and what others say.
var examiners = [model.NumKinds][]func(*examination){
	model.KindVirtualService:     {unknownDestinations, sharedHosts, unknownGateways},
	model.KindDestinationRule:    {unknownHost, ruledHost},
	model.KindServiceEntry:       {sharedHost, otherProtocol},
	model.KindSidecar:            {general, overlapping},
	model.KindTelemetry:          {general, overlapping},
	model.KindPeerAuthentication: {general, overlapping, unservedPorts},
}

// later are those that look for workloads, which come after their configuration: they are not asked about what is only about to be stored.
var later = [model.NumKinds][]func(*examination){
	model.KindDestinationRule:       {emptySubsets, unselected},
	model.KindServiceEntry:          {unselected},
	model.KindSidecar:               {unselected},
	model.KindTelemetry:             {unselected},
	model.KindPeerAuthentication:    {unselected},
	model.KindAuthorizationPolicy:   {unselected},
	model.KindRequestAuthentication: {unselected},
	model.KindEnvoyFilter:           {unselected},
	model.KindWasmPlugin:            {unselected},
	model.KindTrafficExtension:      {unselected},
	model.KindProxyConfig:           {unselected},
	model.KindGateway:               {unselected},
}
