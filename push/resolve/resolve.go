package resolve

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// unit is the resolution of one record that refers to sets of other records.
type unit struct {
	reads    []set
	keys     []setKey     // keys of reads
	result   model.Record // the record for the overlay; may be nil
	problems []model.Problem
}

// resolution resolves a record from the source's snapshot. The result is nil if the record refers to no set of records.
type resolution func(s *source, r model.Record) *unit

// source is a snapshot of the source during one step. Records that select the same workloads share the selection, and
// selections of one namespace share the list of its workloads.
type source struct {
	*mirror.Snapshot
	selections map[string]*selection           // by selectionOf
	workloads  map[[2]string][]*model.Workload // by namespace and prefix of the names
}

// Resolver resolves the snapshots of a source step by step. Only one goroutine may use it.
type Resolver struct {
	table    *[model.NumKinds][]dependency
	crashes  *crash.Log
	source   *mirror.Snapshot // the source's snapshot of the last step
	resolved *mirror.Snapshot
	units    map[model.Key]*unit
	readers  map[setKey]map[model.Key]struct{} // units by the sets that they read
	// The map overlay has the records that replace or complete those of the source, after the resolution.
	overlay map[model.Key]model.Record
	drift   int // number of edits since resolved was last derived from source
}

// New returns a Resolver at the empty snapshot. The Resolver recovers from panics and reports them to the log crashes.
// If crashes is nil, it uses a new log.
func New(crashes *crash.Log) *Resolver {
	if crashes == nil {
		crashes = crash.New(nil)
	}
	empty := mirror.Empty()
	return &Resolver{table: &dependencies, crashes: crashes, source: empty, resolved: empty, units: map[model.Key]*unit{},
		readers: map[setKey]map[model.Key]struct{}{}, overlay: map[model.Key]model.Record{}}
}

// Snapshot resolves a snapshot from scratch. It returns the resolved snapshot and the problems of Resolver.Problems. If
// the resolution changes and creates no record, the resolved snapshot is s itself.
func Snapshot(s *mirror.Snapshot) (*mirror.Snapshot, []model.Problem) {
	r := New(nil)
	return r.Step(mirror.Diff(mirror.Empty(), s)).New, r.Problems()
}

// Fork returns an independent Resolver at the same snapshot, which another goroutine may use. Both Resolvers report
// panics to one log.
func (r *Resolver) Fork() *Resolver {
	next := *r
	next.units, next.overlay = maps.Clone(r.units), maps.Clone(r.overlay)
	next.readers = make(map[setKey]map[model.Key]struct{}, len(r.readers))
	for set, units := range r.readers {
		next.readers[set] = maps.Clone(units)
	}
	return &next
}

// Source returns the snapshot of the source that was resolved last. Before the first Step it is the empty snapshot.
func (r *Resolver) Source() *mirror.Snapshot { return r.source }

// Step resolves a change of the source and returns the change of the resolved snapshots. Old of the result is New of
// the previous result. If c.Old is not the snapshot of the previous step (Source), Step resolves the difference between
// that snapshot and c.New instead of c.Edits. Committed of the result is that of c. Step does not change c, but the
// result may share c.Edits, which must not be changed afterwards. If the resolution of a record panics, Step keeps the
// record's last result and adds a problem. The package comment describes the cost.
func (r *Resolver) Step(c mirror.Change) mirror.Change {
	if r.source.Revision() == 0 && c.Old.Revision() == 0 {
		r.source, r.resolved = c.Old, c.Old // both are empty
	}
	if c.Old != r.source {
		whole := mirror.Diff(r.source, c.New)
		whole.Committed = c.Committed
		c = whole
	}
	touched := map[*model.Span]map[model.Key]bool{} // by Edit.In, which the edits of a batch share
	for _, e := range c.Edits {
		if touched[e.In] == nil {
			touched[e.In] = map[model.Key]bool{}
		}
		r.touch(e, touched[e.In])
	}
	r.source = c.New
	again := causes{}
	for in, keys := range touched {
		for key := range keys {
			again.add(key, in)
		}
	}
	altered := causes{} // of the keys at which the overlay has changed
	from := &source{r.source, map[string]*selection{}, map[[2]string][]*model.Workload{}}
	for _, key := range slices.SortedFunc(maps.Keys(again), model.Key.Compare) {
		r.resolveAgain(from, key, again[key], altered)
	}
	out := mirror.Change{Old: r.resolved, Edits: r.edits(c.Edits, altered), Committed: c.Committed}
	out.New = r.snapshot(out.Edits)
	r.resolved = out.New
	return out
}

// causes maps a key to the revisions of the edits that require its resolution or have changed it. The revisions are nil
// if those of at least one edit are unknown.
type causes map[model.Key]*model.Span

// add adds a cause of a key. It does not change the spans.
func (c causes) add(key model.Key, in *model.Span) {
	if have, more := c[key]; more && have != in {
		if have == nil || in == nil {
			in = nil
		} else {
			both := have.Join(*in)
			in = &both
		}
	}
	c[key] = in
}

// touch adds the units that an edit touches. After a panic it adds all units, so that none is missed.
func (r *Resolver) touch(e mirror.Edit, touched map[model.Key]bool) {
	key := e.Key()
	defer func() {
		if fault := recover(); fault != nil {
			_ = r.crashes.Caught(crash.Plan, fault, obs.KeyObject, key.String()) // logged; all units are resolved again
			touched[key] = true
			for other := range r.units {
				touched[other] = true
			}
		}
	}()
	for _, d := range r.table[key.Kind] {
		d.units(r, e, touched)
	}
}

// resolveAgain resolves one record of a source again because of edits with the revisions in span. It adds to altered
// the keys at which the overlay has changed.
func (r *Resolver) resolveAgain(from *source, key model.Key, span *model.Span, altered causes) {
	old, next := r.units[key], r.resolve(from, key)
	r.index(key, old, -1)
	r.index(key, next, 1)
	if next == nil {
		delete(r.units, key)
	} else {
		r.units[key] = next
	}
	was, is := old.record(), next.record()
	if was != nil && is != nil && was.Meta().Key == is.Meta().Key && was.Meta().Hash == is.Meta().Hash {
		next.result = was // equal content keeps the pointer
		return
	}
	if was != nil {
		delete(r.overlay, was.Meta().Key)
		altered.add(was.Meta().Key, span)
	}
	if is != nil {
		r.overlay[is.Meta().Key] = is
		altered.add(is.Meta().Key, span)
	}
}

// record returns the result of a unit. It is nil for a nil unit.
func (u *unit) record() model.Record {
	if u == nil {
		return nil
	}
	return u.result
}

// resolve resolves a record of the source. The result is nil if there is no record, or if the record refers to no set
// of records. After a panic the unit keeps its last result and gets a problem.
func (r *Resolver) resolve(from *source, key model.Key) (u *unit) {
	record, ok := from.Get(key)
	if !ok || resolutions[key.Kind] == nil {
		return nil
	}
	defer func() {
		if fault := recover(); fault != nil {
			err := r.crashes.Caught(crash.Plan, fault)
			u = &unit{problems: []model.Problem{{Key: key, Code: problem.Internal, Severity: problem.Error,
				Message: "its references cannot be resolved; the last resolved version stays in effect: " + err.Error()}}}
			if old := r.units[key]; old != nil {
				u.reads, u.keys, u.result = old.reads, old.keys, old.result
			}
		}
	}()
	if u = resolutions[key.Kind](from, record); u != nil {
		for _, s := range u.reads {
			u.keys = append(u.keys, s.key())
		}
	}
	return u
}

// edits returns the differences between the resolved snapshots. These are the edits of the source, corrected at the
// keys at which the overlay has changed.
func (r *Resolver) edits(source []mirror.Edit, altered causes) []mirror.Edit {
	if len(r.overlay) == 0 && len(altered) == 0 {
		return source
	}
	out := make([]mirror.Edit, 0, len(source)+len(altered))
	for _, e := range source {
		key := e.Key()
		_, over := r.overlay[key]
		if _, is := altered[key]; !is && !over {
			out = append(out, e)
		}
	}
	for key, in := range altered {
		e := mirror.Edit{In: in}
		e.Old, _ = r.resolved.Get(key)
		if e.New = r.overlay[key]; e.New == nil {
			e.New, _ = r.source.Get(key)
		}
		if e.Old != e.New { // both are nil if the record was created and removed
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) })
	return out
}

// snapshot returns the newest resolved snapshot. If the overlay is empty, this is the source's snapshot. If not, it is
// the previous resolved snapshot with the edits. When the number of edits reaches the number of records in the overlay,
// the result is derived from the source's snapshot again. So the two snapshots keep sharing memory. On average a step
// costs two insertions for each edit.
func (r *Resolver) snapshot(edits []mirror.Edit) *mirror.Snapshot {
	r.drift += len(edits)
	switch {
	case len(r.overlay) == 0:
		r.drift = 0
		return r.source
	case r.drift >= len(r.overlay):
		r.drift = 0
		all := make([]mirror.Edit, 0, len(r.overlay))
		for _, record := range r.overlay {
			all = append(all, mirror.Edit{New: record})
		}
		return r.source.With(all, r.source)
	}
	return r.resolved.With(edits, r.source)
}

// Problems returns the problems of all records that refer to others, sorted (model.Problem.Compare). It returns nil
// without problems. The caller owns the slice.
func (r *Resolver) Problems() []model.Problem {
	var all []model.Problem
	for _, u := range r.units {
		all = append(all, u.problems...)
	}
	slices.SortFunc(all, model.Problem.Compare)
	return all
}
