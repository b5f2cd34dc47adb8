package kube

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// touch has an object looked at by the guard, and emitted, next. With the lock.
func (s *Source) touch(id object.ID) {
	s.touched[id] = true
	s.wake()
}

// leaving is since when deletions of configuration wait for others. Where a CustomResourceDefinition is deleted, or a folder by kubectl, the API
// server reports one object after the other; a guard that sees each for itself sees no mass removal.
type leaving struct{ first, last time.Time }

// graces is for how many times Grace deletions wait that do not end.
const graces = 4

// ripe says whether deletions that wait are to be judged, now that there are so many more.
func (l *leaving) ripe(at time.Time, more int, grace time.Duration) bool {
	if l.first.IsZero() {
		l.first = at
	}
	if more > 0 {
		l.last = at
	}
	return at.Sub(l.last) >= grace || at.Sub(l.first) >= graces*grace
}

// due takes what is touched and to be judged now, in order: all but deletions of configuration that wait. With the lock.
func (s *Source) due(at time.Time) (ids []object.ID) {
	waiting, fresh := []object.ID(nil), 0
	for id, isFresh := range s.touched {
		if emitted, now := (seen{s}).Get(id); emitted != nil && now == nil && wanted(id.Group) {
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
	if len(waiting) == 0 {
		if s.leaving = (leaving{}); len(ids) > 1000 {
			s.touched = map[object.ID]bool{} // a map keeps the room that it once had
		}
	} else if s.leaving.ripe(at, fresh, s.Grace) {
		ids, s.leaving = append(ids, waiting...), leaving{}
		clear(s.touched)
	}
	slices.SortFunc(ids, object.ID.Compare)
	return ids
}

// waits is for how long what waits is to wait; false: nothing does.
func (s *Source) waits(at time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leaving
	if l.last.IsZero() {
		return 0, false
	}
	return max(min(l.last.Add(s.Grace).Sub(at), l.first.Add(graces*s.Grace).Sub(at)), time.Millisecond), true
}

// decide adds events that nobody judges. With the lock.
func (s *Source) decide(events ...object.Event) {
	if s.decided = append(s.decided, events...); len(events) > 0 {
		s.wake()
	}
}

func (s *Source) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// synced has everything emitted, and then Synced, once every kind that is served was listed in full. With the lock.
func (s *Source) synced() {
	if s.complete || !s.discover || !s.allListed() {
		return
	}
	s.complete = s.settled
	s.wake()
}

// take is what is to be emitted now, in parts that are emitted together: up to Synced all of it, then by namespace. Kubernetes has no change of
// several objects, and a busy namespace is to hold up no other.
func (s *Source) take(at time.Time) (parts [][]object.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.selection.ready {
		return nil
	}
	events := append(s.decided, s.judge(at)...)
	s.decided, s.held = nil, s.guard.Held()
	s.dropKinds()
	switch {
	case s.emittedSynced:
		return byNamespace(events)
	case s.complete:
		s.emittedSynced = true
		events = append(events, object.Event{Op: object.Synced, ID: object.ID{Origin: s.origin}})
		s.Log.Info("everything was read from Kubernetes", obs.KeyKinds, len(s.kinds))
	case len(events) == 0:
		return nil
	}
	return [][]object.Event{events}
}

// judge is what became of the objects that are touched, but for what the guard holds. With the lock.
func (s *Source) judge(at time.Time) (events []object.Event) {
	ids := s.due(at)
	if len(ids) == 0 {
		return nil
	}
	ids = append(ids, s.guard.Judge(at, seen{s}, ids)...) // one that is there twice is emitted once: emitted is now, then
	var deletes []object.Event
	for _, id := range ids {
		emitted, now := seen{s}.Get(id)
		switch {
		case emitted == now || s.guard.Holds(id):
		case now == nil:
			deletes = append(deletes, s.noteEmitted(id, nil))
		default:
			events = append(events, s.noteEmitted(id, now))
		}
	}
	return append(events, deletes...)
}

// noteEmitted notes what is emitted of an object, and returns the event. With the lock.
func (s *Source) noteEmitted(id object.ID, now *object.Object) object.Event {
	s.of(id).table.noteEmitted(name{id.Namespace, id.Name}, now)
	if now == nil {
		return object.Event{Op: object.Delete, ID: id, Location: location}
	}
	return object.Event{Op: object.Put, ID: id, Object: now, Location: location}
}

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

// followers is all of them. With the lock.
func (s *Source) followers() iter.Seq[*follower] { return maps.Values(s.kinds) }

// of is the follower that reads an object; nil: none does. With the lock.
func (s *Source) of(id object.ID) *follower {
	if f := s.kinds[kindID{group: id.Group, kind: id.Kind}]; f != nil {
		return f
	}
	return s.kinds[kindID{id.Group, id.Kind, id.Namespace + "/" + id.Name}]
}

// Held is what the shrink guard holds, in order. Safe for concurrent use.
func (s *Source) Held() []object.Loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Everything says whether all that was emitted is held. Safe for concurrent use.
func (s *Source) Everything() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	emitted := 0
	for f := range s.followers() {
		emitted += f.table.emitted
	}
	return emitted > 0 && s.guard.Vanished() == emitted
}

// Release lets exactly these losses go that the guard holds; false: it holds others, and nothing was let go. Run emits them. Safe for
// concurrent use.
func (s *Source) Release(_ context.Context, losses []object.Loss) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(losses) == 0 || !s.guard.Release(losses) {
		return false
	}
	s.held = nil
	for _, l := range losses {
		_, now := seen{s}.Get(l.ID)
		s.decide(s.noteEmitted(l.ID, now))
	}
	return true
}

// Problems is what hinders reading now, by kind, and what is held: what was read before stands. Safe for concurrent use.
func (s *Source) Problems() []object.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []object.Problem
	var refused []string
	say := func(id object.ID, code problem.Code, message string) {
		id.Origin = s.origin
		all = append(all, object.Problem{ID: id, Location: location, Code: code, Severity: problem.Error, Message: message})
	}
	if s.wrong != "" {
		say(object.ID{}, problem.Unreadable, "the API server does not say which kinds it serves: "+s.wrong)
	}
	if s.selection.wrong != "" {
		say(object.ID{Kind: "ConfigMap", Namespace: s.SystemNamespace, Name: s.meshName()}, problem.Invalid, s.selection.wrong)
	}
	if s.meshes.wrong != "" {
		say(object.ID{Kind: "ConfigMap", Namespace: s.SystemNamespace, Name: s.SharedMesh}, problem.Invalid, s.meshes.wrong)
	}
	for f := range s.followers() {
		switch {
		case f.wrong != "" && !f.gone && s.need(f.kind) == reported:
			id := f.kind.of()
			id.Origin = s.origin
			all = append(all, object.Problem{ID: id, Location: location, Code: problem.Unreadable, Severity: problem.Warning,
				Message: "cannot be read from the API server: " + f.wrong + "; objects of this kind are not acted on, and are not reported one by one; everything else is read all the same"})
		case f.refused >= refusals:
			refused = append(refused, f.kind.kind)
		case f.wrong != "" && !f.gone:
			say(f.kind.of(), problem.Unreadable, "cannot be read from the API server: "+f.wrong+"; what was read before stands")
		}
	}
	if s.hidden {
		refused = append(refused, workloadEntries.kind)
	}
	if slices.Sort(refused); len(refused) > 0 {
		all = append(all, object.Problem{ID: object.ID{Origin: s.origin}, Location: location, Code: problem.NotAllowed, Severity: problem.Warning,
			Message: "may not be listed and watched with the credentials of this cluster: " + strings.Join(refused, ", ") +
				"; its other kinds, endpoints among them, are read all the same"})
	}
	for f := range s.followers() {
		f.leftOut(say)
	}
	tooMany(s.beyond, func(id object.ID, message string) { say(id, problem.NotAllowed, message) })
	held := map[object.ID]int{}
	for _, l := range s.held {
		if l.Version == "" {
			held[object.ID{Kind: l.ID.Kind}]++
			continue
		}
		say(l.ID, problem.Held, "its newest version lacks most of its endpoints while their Pods are ready: the version before is held; mend it, or accept the loss "+
			"(navarchctl store held; --allow-empty)")
	}
	for kind, n := range held {
		say(kind, problem.Held, fmt.Sprintf(
			"%d vanished within a short time: the last good ones are held; put them back, or accept the removal (navarchctl store held; --allow-empty)", n))
	}
	slices.SortFunc(all, func(a, b object.Problem) int { return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(a.Message, b.Message)) })
	return all
}
