package kube

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// touch marks an object for emission. The caller has locked Source.mu.
func (s *Source) touch(id object.ID) {
	s.touched[id] = true
	s.wake()
}

// due removes and returns the marked objects that can be emitted now, sorted. Deletions of configuration that wait for
// a confirmation (leaving.go) stay marked. The caller has locked Source.mu.
func (s *Source) due(at time.Time) (ids []object.ID) {
	waiting, fresh := []object.ID(nil), 0
	for id, isFresh := range s.touched {
		if s.waitsForDefinition(id) {
			waiting = append(waiting, id)
			if isFresh {
				fresh++
			}
			s.touched[id] = false
			continue
		}
		ids = append(ids, id)
		delete(s.touched, id)
	}
	if s.leaving.gather(at, waiting, fresh, s.Grace); len(waiting) == 0 && len(ids) > 1000 {
		s.touched = map[object.ID]bool{} // a Go map never shrinks
	}
	slices.SortFunc(ids, object.ID.Compare)
	return ids
}

// enqueue appends events that are emitted without a comparison with the last state. The caller has locked Source.mu.
func (s *Source) enqueue(events ...object.Event) {
	if s.decided = append(s.decided, events...); len(events) > 0 {
		s.wake()
	}
}

// wake triggers an emission after Config.Quiet, without blocking.
func (s *Source) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// synced schedules the Synced event (all objects were emitted) if every kind that must be listed was listed in full,
// and the referenced Secrets are followed. The caller has locked Source.mu.
func (s *Source) synced() {
	if s.complete || !s.discover || !s.allListed() {
		return
	}
	s.complete = s.settled
	s.wake()
}

// takeEvents removes and returns the events to emit, in parts. Run emits the parts one after the other. Until Synced,
// all events are in one part. After Synced, each namespace has its own part, so that a busy namespace does not delay
// others. The events can be divided because Kubernetes has no atomic changes of several objects.
func (s *Source) takeEvents(at time.Time) (parts [][]object.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.selection.ready {
		return nil
	}
	events := append(s.decided, s.changes(at)...)
	s.decided = nil
	s.dropKinds()
	switch {
	case s.emittedSynced:
		parts = byNamespace(events)
		if kinds := s.listedKinds(); !slices.Equal(kinds, s.listing) {
			parts = append(parts, []object.Event{s.syncedWith(kinds)})
		}
		return parts
	case s.complete:
		s.emittedSynced = true
		events = append(events, s.syncedWith(s.listedKinds()))
		s.Log.Info("everything was read from Kubernetes", obs.KeyKinds, len(s.kinds))
	case len(events) == 0:
		return nil
	}
	return [][]object.Event{events}
}

// syncedWith returns a Synced event for the given kinds, and records the kinds. The caller has locked Source.mu.
func (s *Source) syncedWith(kinds []object.ID) object.Event {
	s.listing = kinds
	return object.Event{Op: object.Synced, ID: object.ID{Origin: s.origin}, Kinds: kinds}
}

// listedKinds returns the served kinds that were listed in full, sorted. The kinds of referenced objects are excluded,
// because only single objects of these kinds are listed. The caller has locked Source.mu.
func (s *Source) listedKinds() []object.ID {
	kinds := []object.ID{}
	for f := range s.followers() {
		if f.whole && !f.gone && !f.kind.referenced {
			kinds = append(kinds, object.ID{Group: f.kind.group, Kind: f.kind.kind})
		}
	}
	slices.SortFunc(kinds, object.ID.Compare)
	return slices.Compact(kinds)
}

// changes returns one event for each due object whose state differs from the emitted state. Deletions come last. The
// caller has locked Source.mu.
func (s *Source) changes(at time.Time) (events []object.Event) {
	var deletes []object.Event
	for _, id := range s.due(at) {
		emitted, now := s.get(id)
		switch {
		case emitted == now:
			delete(s.lost, id)
		case now == nil:
			countEvent(id, "delete")
			deletes = append(deletes, s.noteEmitted(id, nil))
		default:
			if emitted == nil {
				countEvent(id, "add")
			} else {
				countEvent(id, "update")
			}
			events = append(events, s.noteEmitted(id, now))
		}
	}
	return append(events, deletes...)
}

// noteEmitted records the emitted state of an object (nil: deleted), and returns its event. The caller has locked
// Source.mu.
func (s *Source) noteEmitted(id object.ID, now *object.Object) object.Event {
	s.of(id).table.noteEmitted(name{id.Namespace, id.Name}, now)
	if now == nil {
		why := s.lost[id]
		delete(s.lost, id)
		return object.Event{Op: object.Delete, ID: id, Location: location, Why: why}
	}
	return object.Event{Op: object.Put, ID: id, Object: now, Location: location}
}

// byNamespace groups events by the namespace of their objects, in the order of first occurrence.
func byNamespace(events []object.Event) (parts [][]object.Event) {
	at := map[string]int{}
	for _, e := range events {
		i, known := at[e.ID.Namespace]
		if !known {
			i = len(parts)
			at[e.ID.Namespace] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], e)
	}
	return parts
}

// followers iterates over all followers. The caller has locked Source.mu.
func (s *Source) followers() iter.Seq[*follower] { return maps.Values(s.kinds) }

// of returns the follower (the reader of one kind) that reads an object. It returns nil if the object is not read. The
// caller has locked Source.mu.
func (s *Source) of(id object.ID) *follower {
	if f := s.kinds[kindID{group: id.Group, kind: id.Kind}]; f != nil {
		return f
	}
	return s.kinds[kindID{id.Group, id.Kind, id.Namespace + "/" + id.Name}]
}

// Problems returns the reasons for which parts of the cluster cannot be read now, sorted by object and message. It also
// reports invalid discoverySelectors and an invalid shared mesh configuration. The result is nil if all is read, or if
// Run is not running. The state that was read before remains in effect. The caller owns the slice. Problems is safe for
// concurrent use.
func (s *Source) Problems() []object.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []object.Problem
	var refused []string
	report := func(id object.ID, code problem.Code, message string) {
		id.Origin = s.origin
		all = append(all, object.Problem{ID: id, Location: location, Code: code, Severity: problem.Error, Message: message})
	}
	if s.wrong != "" {
		report(object.ID{}, problem.Unreadable, "the API server does not say which kinds it serves: "+s.wrong)
	}
	if s.selection.wrong != "" {
		report(object.ID{Kind: "ConfigMap", Namespace: s.SystemNamespace, Name: s.meshName()}, problem.Invalid, s.selection.wrong)
	}
	if s.meshes.Wrong != "" {
		report(object.ID{Kind: "ConfigMap", Namespace: s.SystemNamespace, Name: s.SharedMesh}, problem.Invalid, s.meshes.Wrong)
	}
	for f := range s.followers() {
		switch {
		case f.wrong != "" && !f.gone && s.need(f.kind) == reported:
			id := f.kind.of()
			id.Origin = s.origin
			all = append(all, object.Problem{ID: id, Location: location, Code: problem.Unreadable, Severity: problem.Warning,
				Message: "cannot be read from the API server: " + f.wrong + "; objects of this kind have no effect, " +
					"and get no reports of their own; all other kinds are read"})
		case f.refused >= refusals:
			refused = append(refused, f.kind.kind)
		case f.wrong != "" && !f.gone:
			report(f.kind.of(), problem.Unreadable, "cannot be read from the API server: "+f.wrong+"; the state read before stays in effect")
		}
	}
	if s.hidden {
		refused = append(refused, workloadEntries.kind)
	}
	if slices.Sort(refused); len(refused) > 0 {
		all = append(all, object.Problem{ID: object.ID{Origin: s.origin}, Location: location, Code: problem.NotAllowed, Severity: problem.Warning,
			Message: "may not be listed and watched with the credentials of this cluster: " + strings.Join(refused, ", ") +
				"; all other kinds of this cluster are read, also endpoints"})
	}
	for f := range s.followers() {
		f.leftOut(report)
	}
	tooMany(s.beyond, func(id object.ID, message string) { report(id, problem.NotAllowed, message) })
	slices.SortFunc(all, func(a, b object.Problem) int { return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(a.Message, b.Message)) })
	return all
}
