package ingest

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// phase is the state of this process's leadership.
type phase uint8

const (
	idle    phase = iota // this process does not lead, or sources have not emitted everything yet
	loading              // the full comparison is in progress
	ready                // the stored hashes are known
	writing              // one batch is in progress
)

// following reports whether changes of wanted records are compared with the store one by one.
func (p phase) following() bool { return p == ready || p == writing }

// Stats contains counters of finished work.
type Stats struct {
	Normalised uint64 // objects turned into records
	Batches    uint64 // batches written
	Puts       uint64 // records written
	Deletes    uint64 // records deleted
}

// State is the ingester as a state machine, without clock, goroutines and store. It is not safe for concurrent use.
// State calls its parts. The parts removals, sealing and others call inventory, wanted, stored and writes. No part
// calls State.
type State struct {
	leading bool
	phase   phase
	epoch   kv.Epoch
	altered bool // a full comparison must follow the load or batch in progress, because the store may have changed

	sources   *sources   // which sources have emitted everything
	inventory *inventory // converts objects to records
	removals  *removals  // decides which removals are held back
	stored    *stored    // the contents of the store
	writes    *writes    // makes batches of changed records
	sealing   *sealing   // schedules the sealing of private keys
	others    *others    // repairs records that other writers changed
}

// NewState returns the State before the first event.
func NewState(o Options) *State {
	s := &State{sources: newSources(o), inventory: newInventory(o), stored: newStored()}
	wanted := s.inventory.wanted
	s.writes = newWrites(wanted, s.stored, s.sources)
	s.sealing = newSealing(wanted, s.stored)
	s.others = &others{wanted: wanted, stored: s.stored, writes: s.writes, restore: map[string]kv.Value{}}
	s.removals = newRemovals(o, s.inventory, s.stored, s.sources)
	return s
}

// Step applies one event, and returns the effects to carry out. The result is nil if no effect is due. The caller
// passes the result of each effect to Step, as an event. Results of an earlier term are ignored.
func (s *State) Step(event Event) []Effect {
	switch e := event.(type) {
	case Objects:
		return s.Step(Emits{{Objects: e}})
	case Emits:
		return s.applyEach(slices.Values(e))
	case Remotes:
		s.sources.expect(e)
	case Gained:
		if s.leads(e.Epoch) {
			return nil
		}
		s.endTerm()
		s.leading, s.epoch = true, e.Epoch
		s.writes.place = kv.Place{}
		s.removals.begin(e.Held)
		return s.startComparison(false)
	case Lost:
		s.endTerm()
		return nil
	case Loaded:
		if !s.leads(e.Epoch) || s.phase != loading {
			return nil
		}
		if s.altered { // the load may be outdated
			return s.startComparison(false)
		}
		s.compare(e)
	case Written:
		if !s.leads(e.Epoch) || s.phase != writing {
			return nil
		}
		effects, on := s.endBatch(e)
		if !on {
			return effects
		}
		return append(effects, s.next()...)
	case Sealed:
		if !s.leads(e.Epoch) || !s.sealing.active {
			return nil
		}
		s.writes.enqueue(s.sealing.applySealed(e, s.inventory.sourceOf))
	case Look:
		return s.requestReencryption()
	case Reencrypted:
		if !s.leads(e.Epoch) {
			return nil
		}
		s.sealing.applyReencrypted(e)
	case Due:
		s.writes.paced = false
	case Passed:
		s.applyPassed(e.Now)
	case Levelled:
		return s.setLevel(e)
	case Foreign, Recalled, Altered:
		return s.mend(e)
	}
	return s.next()
}

// next returns the effects that are due: the next batch, and the private keys to seal.
func (s *State) next() []Effect { return append(s.flush(), s.requestSealing()...) }

// leads reports whether this process leads in the given term.
func (s *State) leads(term kv.Epoch) bool { return s.leading && s.epoch == term }

// applyEach applies calls of sources in their order, and returns the effects.
func (s *State) applyEach(emits iter.Seq[Emit]) []Effect {
	s.inventory.yielder = loop.NewYielder()
	for emit := range emits {
		s.inventory.heard = emit.At
		if s.sources.note(emit.Objects) { // nothing is written until the source has emitted everything again
			s.phase = idle
		}
		s.inventory.applyEvents(s.removals.filter(emit.Objects, s.inventory.heard, s.phase))
		s.collect()
	}
	if s.phase == idle {
		return s.startComparison(false)
	}
	return s.next()
}

// applyReleased applies removals that are no longer held.
func (s *State) applyReleased(gone []object.Event) {
	s.inventory.yielder = loop.NewYielder()
	s.inventory.applyEvents(gone)
	s.collect()
}

// collect passes the changed keys to writes. Until the full comparison of a term has ended, it only drops them, since
// the comparison finds every change.
func (s *State) collect() {
	changed := s.inventory.wanted.changed
	if s.phase.following() {
		s.removals.drop(changed)
		s.writes.collect(changed, s.inventory.heard, len(s.inventory.unreadable) == 0)
	}
	s.inventory.wanted.clearChanged()
}

// startComparison begins a full comparison. It returns nil while this process does not lead, or a source has not
// emitted everything. If again is true, the Loop pauses before the load.
func (s *State) startComparison(again bool) []Effect {
	if !s.leading || !s.sources.complete() {
		return nil
	}
	s.phase, s.altered = loading, false
	s.writes.queue = newQueue() // the comparison finds every change that waited
	s.sources.remotes.beginComparison()
	return []Effect{Load{Epoch: s.epoch, Again: again}}
}

// endTerm ends the term, and drops the knowledge about the store.
func (s *State) endTerm() {
	s.leading, s.phase, s.altered = false, idle, false
	s.stored.forget()
	s.writes.endTerm()
	s.sealing.endTerm()
	s.others.forget()
	s.applyReleased(s.removals.releaseAll())
}

// compareAgain starts a full comparison if the sources of other clusters require one (remotes.again). If a load or a
// batch is in progress, the comparison follows it.
func (s *State) compareAgain() []Effect {
	if r := s.sources.remotes; r == nil || !r.again {
		return nil
	}
	switch s.phase {
	case ready:
		return s.startComparison(false)
	case loading, writing:
		s.altered, s.sources.remotes.again = true, false
	case idle:
	}
	return nil
}

// flush returns the next batch, or the beginning of a full comparison that is due; nil if neither is due.
func (s *State) flush() []Effect {
	if effects := s.compareAgain(); effects != nil {
		return effects
	}
	if s.phase != ready || s.writes.idle() && len(s.sealing.reencryptions) == 0 && len(s.others.restore) == 0 {
		return nil
	}
	batch, since, ok := s.writes.makeBatch(s.epoch, s.sealing.takeReencrypted(s.writes.queue), s.others)
	if !ok {
		return nil
	}
	s.phase = writing
	return []Effect{Write{Batch: batch, Since: since}}
}

// endBatch applies the outcome of a batch. The second result reports whether another batch may be written at once.
func (s *State) endBatch(e Written) (effects []Effect, on bool) {
	batch := s.writes.takeBatch()
	switch e.Outcome {
	case Deposed:
		s.endTerm()
		return nil, false
	case Unknown:
		s.writes.paced = false
		return s.startComparison(true), false
	case Done:
	}
	s.phase = ready
	s.writes.applyWritten(batch, e)
	if s.altered {
		s.writes.paced = false
		return s.startComparison(true), false
	}
	if s.writes.paced {
		effects = append(effects, Wait{})
	}
	return effects, true
}

// requestSealing requests the sealing of private keys, unless a request is in progress.
func (s *State) requestSealing() []Effect {
	if !s.phase.following() {
		return nil
	}
	return s.sealing.request(s.epoch)
}

// requestReencryption requests the encryption of all stored Secrets under the newest key. It returns nil if a batch or
// a load is in progress, or if no Secret is stored.
func (s *State) requestReencryption() []Effect {
	if s.phase != ready || len(s.stored.secrets) == 0 {
		return nil
	}
	return []Effect{Reencrypt{Epoch: s.epoch, Stored: s.stored.allSecrets()}}
}

// Problems returns the problems of single objects and of their records, of budgets and of held removals, and the
// problems between objects that the last check found. The list is bounded by Bounded and sorted by
// normal.CompareProblems. The caller must not change the list.
func (s *State) Problems() []object.Problem {
	s.inventory.shown.set(ofState, s.more())
	return s.inventory.shown.problems()
}

// more returns the problems of budgets, of records that cannot be written, and of held removals, in no order.
func (s *State) more() []object.Problem {
	more := slices.Clone(s.inventory.budgets.problems(s.inventory.location))
	more = append(more, s.writes.problems(s.inventory.sourceOf)...)
	more = append(more, s.sealing.problems()...)
	more = append(more, s.removals.problems()...)
	if s.phase == ready && s.stored.after == 0 && s.inventory.wanted.empty() {
		more = append(more, object.Problem{Code: problem.Held, Severity: problem.Error,
			Message: "the configuration yields no records, and nothing was stored before: replicas do not become ready. " +
				"Check whether the folder is mounted, or set --allow-empty to serve an empty mesh"})
	}
	return more
}

// Stats returns the counters of finished work, since NewState.
func (s *State) Stats() Stats {
	stats := s.writes.stats
	stats.Normalised = s.inventory.normalised
	return stats
}
