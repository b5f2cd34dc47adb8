package ingest

import (
	"slices"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

type phase uint8

const (
	idle    phase = iota // this process does not lead, or sources have not emitted everything yet
	loading              // the full comparison is under way
	ready                // the stored hashes are known
	writing              // one batch is under way
)

// following reports whether changes of wanted records are compared with the store one by one.
func (p phase) following() bool { return p == ready || p == writing }

// Stats counts finished work.
type Stats struct {
	Normalised uint64 // objects turned into records
	Batches    uint64 // batches written
	Puts       uint64
	Deletes    uint64
}

// State is the ingester without clock and store. Calls go one way: State calls its parts; removals, sealing and others
// call inventory, wanted, stored and writes; none of these calls State.
type State struct {
	leading bool
	phase   phase
	epoch   kv.Epoch
	altered bool // the contents of the store are not known: compare once the batch under way has ended

	sources   *sources   // which sources have emitted everything
	inventory *inventory // objects to records
	removals  *removals  // objects that are gone and whose removal is held
	stored    *stored    // the contents of the store
	writes    *writes    // records to batches
	sealing   *sealing   // private keys to sealed ones
	others    *others    // writes of others
}

// NewState makes the state before any event.
func NewState(o Options) *State {
	s := &State{sources: newSources(o), inventory: newInventory(o), stored: newStored()}
	wanted := s.inventory.wanted
	s.writes = newWrites(wanted, s.stored, s.sources)
	s.sealing = newSealing(wanted, s.stored)
	s.others = &others{wanted: wanted, stored: s.stored, writes: s.writes, restore: map[string]kv.Value{}}
	s.removals = newRemovals(o, s.inventory, s.stored, s.sources)
	return s
}

// Step applies one event, and returns the acts that follow from it.
func (s *State) Step(event Event) []Effect {
	switch e := event.(type) {
	case Objects:
		return s.Step(Emits{{Objects: e}})
	case Emits:
		if s.applyEmits(e); s.phase == idle {
			return s.startComparison(false)
		}
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
		if s.altered { // the level has changed meanwhile
			return s.startComparison(false)
		}
		s.compare(e)
	case Written:
		if !s.leads(e.Epoch) || s.phase != writing {
			return nil
		}
		if effects, on := s.endBatch(e); !on {
			return effects
		} else if more := s.next(); len(effects)+len(more) > 0 {
			return append(effects, more...)
		}
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
	case Levelled:
		return s.setLevel(e)
	case Foreign, Recalled, Altered:
		return s.mend(e)
	}
	return s.next()
}

// next returns the next batch, and the private keys that are to be sealed.
func (s *State) next() []Effect { return append(s.flush(), s.requestSealing()...) }

// leads reports whether this process leads, in this term.
func (s *State) leads(term kv.Epoch) bool { return s.leading && s.epoch == term }

// applyEmits applies the events of sources, in their order.
func (s *State) applyEmits(emits Emits) {
	s.inventory.yielder = loop.NewYielder()
	for _, emit := range emits {
		s.inventory.heard = emit.At
		if s.sources.note(emit.Objects) { // nothing is written until the source has emitted everything again
			s.phase = idle
		}
		s.inventory.take(s.removals.filter(emit.Objects, s.inventory.heard, s.phase))
		s.collect()
	}
}

// takeAgain applies removals that were held.
func (s *State) takeAgain(gone []object.Event) {
	s.inventory.yielder = loop.NewYielder()
	s.inventory.take(gone)
	s.collect()
}

// collect hands the changed keys to writes. Before the comparison of a term there is nothing to note, since the
// comparison finds every change.
func (s *State) collect() {
	changed := s.inventory.wanted.changed
	if s.phase.following() {
		s.removals.drop(changed)
		s.writes.collect(changed, s.inventory.heard, len(s.inventory.unreadable) == 0)
	}
	s.inventory.wanted.clearChanged()
}

// startComparison begins the full comparison, as soon as this process leads and the sources have emitted everything.
func (s *State) startComparison(again bool) []Effect {
	if !s.leading || !s.sources.complete() {
		return nil
	}
	s.phase, s.altered = loading, false
	s.writes.queue = newQueue() // the comparison finds every change that waited
	s.sources.remotes.beginComparison()
	return []Effect{Load{Epoch: s.epoch, Again: again}}
}

// endTerm forgets the store.
func (s *State) endTerm() {
	s.leading, s.phase, s.altered = false, idle, false
	s.stored.forget()
	s.writes.endTerm()
	s.sealing.endTerm()
	s.others.forget()
	s.takeAgain(s.removals.releaseAll())
}

// compareAgain begins a full comparison where a cluster's source has emitted everything since the last one.
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

// flush returns the next batch, if there is one to write.
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

// endBatch applies the outcome of a batch, and reports whether another one may be written.
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

// requestSealing requests the sealing of private keys, unless it is under way.
func (s *State) requestSealing() []Effect {
	if !s.phase.following() {
		return nil
	}
	return s.sealing.request(s.epoch)
}

// requestReencryption requests that all stored Secrets are encrypted under the newest key.
func (s *State) requestReencryption() []Effect {
	if s.phase != ready || len(s.stored.secrets) == 0 {
		return nil
	}
	return []Effect{Reencrypt{Epoch: s.epoch, Stored: s.stored.allSecrets()}}
}

// Problems returns the problems of single objects and of writing them, sorted, as many as are listed (Bounded). The
// caller does not change it.
func (s *State) Problems() []object.Problem { return s.listed(nil) }

// listed returns Problems, with those between objects.
func (s *State) listed(between []object.Problem) []object.Problem {
	f := s.inventory.faults
	more := s.more()
	if more = append(more, between...); len(more) == 0 && f.Objects() <= problem.Most/problem.MostOfObject {
		return f.Listed()
	}
	all := slices.Concat(f.Listed(), more)
	slices.SortFunc(all, normal.CompareProblems)
	return Bounded(all, f.Left())
}

// more returns the problems of writing objects.
func (s *State) more() []object.Problem {
	more := slices.Clone(s.inventory.budgets.problems(s.inventory.location))
	more = append(more, s.writes.problems(s.inventory.sourceOf)...)
	more = append(more, s.sealing.problems()...)
	more = append(more, s.removals.problems()...)
	if s.phase == ready && s.stored.after == 0 && s.inventory.wanted.empty() {
		more = append(more, object.Problem{Code: problem.Held, Severity: problem.Error,
			Message: "the configuration has no object that proxies are told of, and nothing was stored before: " +
				"replicas are not ready, since an empty mesh may be a folder that is not mounted (--allow-empty has it served)"})
	}
	return more
}

// Stats counts finished work.
func (s *State) Stats() Stats {
	stats := s.writes.stats
	stats.Normalised = s.inventory.normalised
	return stats
}
