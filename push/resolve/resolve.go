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

// unit is one record that refers by set, resolved.
type unit struct {
	reads    []set
	keys     []setKey     // of reads
	became   model.Record // in the overlay; nil: nothing
	problems []model.Problem
}

// resolution makes a unit of a record, from the source's snapshot; nil: the record refers to no set.
type resolution func(s *mirror.Snapshot, r model.Record) *unit

// Resolver follows a source of snapshots and resolves them. It has no clock and no socket, and belongs to one goroutine.
type Resolver struct {
	table    *[model.NumKinds][]dependency
	crashes  *crash.Log
	source   *mirror.Snapshot // as it was read last
	resolved *mirror.Snapshot
	units    map[model.Key]*unit
	readers  map[setKey]map[model.Key]struct{} // units by the sets that they read
	overlay  map[model.Key]model.Record
	drift    int // edits since resolved was made of source
}

// New makes a resolver of the empty snapshot. crashes is where panics go; nil: one of its own.
func New(crashes *crash.Log) *Resolver {
	if crashes == nil {
		crashes = crash.New(nil)
	}
	empty := mirror.Empty()
	return &Resolver{table: &dependencies, crashes: crashes, source: empty, resolved: empty, units: map[model.Key]*unit{},
		readers: map[setKey]map[model.Key]struct{}{}, overlay: map[model.Key]model.Record{}}
}

// Snapshot resolves one snapshot from scratch.
func Snapshot(s *mirror.Snapshot) (*mirror.Snapshot, []model.Problem) {
	r := New(nil)
	return r.Step(mirror.Diff(mirror.Empty(), s)).New, r.Problems()
}

// Step takes a change of the source and gives back the change of what is resolved, from the New of the step before. A change that does
// not begin where the one before it ended is taken as the difference to it.
func (r *Resolver) Step(c mirror.Change) mirror.Change {
	if r.source.Revision() == 0 && c.Old.Revision() == 0 {
		r.source, r.resolved = c.Old, c.Old // empty ones alike
	}
	if c.Old != r.source {
		whole := mirror.Diff(r.source, c.New)
		whole.Committed = c.Committed
		c = whole
	}
	touched := map[model.Key]bool{}
	for _, e := range c.Edits {
		r.touch(e, touched)
	}
	r.source = c.New
	altered := map[model.Key]bool{} // records under which the overlay is another
	for _, key := range slices.SortedFunc(maps.Keys(touched), model.Key.Compare) {
		r.renew(key, altered)
	}
	out := mirror.Change{Old: r.resolved, Edits: r.edits(c.Edits, altered), Committed: c.Committed}
	out.New = r.snapshot(out.Edits)
	r.resolved = out.New
	return out
}

// touch notes which units an edit touches. Where that panics it is all of them, so that nothing is missed.
func (r *Resolver) touch(e mirror.Edit, touched map[model.Key]bool) {
	key := e.Key()
	defer func() {
		if fault := recover(); fault != nil {
			_ = r.crashes.Caught(crash.Plan, fault, obs.KeyObject, key.String()) // logged; everything is resolved again instead
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

// renew resolves one record again, and says under which keys the overlay is another.
func (r *Resolver) renew(key model.Key, altered map[model.Key]bool) {
	old, next := r.units[key], r.resolve(key)
	r.index(key, old, -1)
	r.index(key, next, 1)
	if next == nil {
		delete(r.units, key)
	} else {
		r.units[key] = next
	}
	was, is := old.record(), next.record()
	if was != nil && is != nil && was.Meta().Key == is.Meta().Key && was.Meta().Hash == is.Meta().Hash {
		next.became = was // same content, same pointer
		return
	}
	if was != nil {
		delete(r.overlay, was.Meta().Key)
		altered[was.Meta().Key] = true
	}
	if is != nil {
		r.overlay[is.Meta().Key] = is
		altered[is.Meta().Key] = true
	}
}

func (u *unit) record() model.Record {
	if u == nil {
		return nil
	}
	return u.became
}

// resolve makes the unit of a record of the source; nil: there is none, or it refers to no set. Where that panics, what the unit became
// last stands.
func (r *Resolver) resolve(key model.Key) (u *unit) {
	record, ok := r.source.Get(key)
	if !ok || resolutions[key.Kind] == nil {
		return nil
	}
	defer func() {
		if fault := recover(); fault != nil {
			err := r.crashes.Caught(crash.Plan, fault)
			u = &unit{problems: []model.Problem{{Key: key, Code: problem.Internal, Severity: problem.Error,
				Message: "what it refers to cannot be resolved, and the last that could stands: " + err.Error()}}}
			if old := r.units[key]; old != nil {
				u.reads, u.keys, u.became = old.reads, old.keys, old.became
			}
		}
	}()
	if u = resolutions[key.Kind](r.source, record); u != nil {
		for _, s := range u.reads {
			u.keys = append(u.keys, s.key())
		}
	}
	return u
}

// edits are what differs between the resolved snapshots, by the edits of the source and the keys under which the overlay is another.
func (r *Resolver) edits(source []mirror.Edit, altered map[model.Key]bool) []mirror.Edit {
	if len(r.overlay) == 0 && len(altered) == 0 {
		return source
	}
	out := make([]mirror.Edit, 0, len(source)+len(altered))
	for _, e := range source {
		key := e.Key()
		if _, is := r.overlay[key]; !is && !altered[key] {
			out = append(out, e)
		}
	}
	for key := range altered {
		var e mirror.Edit
		e.Old, _ = r.resolved.Get(key)
		if e.New = r.overlay[key]; e.New == nil {
			e.New, _ = r.source.Get(key)
		}
		if e.Old != e.New { // pointers; neither is there: it came and went
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) })
	return out
}

// snapshot is the newest resolved snapshot. Without an overlay it is the source's. With one it follows by edits, and is made of the
// source's once as many edits have come as the overlay has records: so it never differs in structure from the source's by more
// than that, and a step costs, averaged, two insertions for each edit.
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

// Problems are what is wrong with records that refer by set, by object.
func (r *Resolver) Problems() []model.Problem {
	var all []model.Problem
	for _, u := range r.units {
		all = append(all, u.problems...)
	}
	slices.SortFunc(all, model.Problem.Compare)
	return all
}
