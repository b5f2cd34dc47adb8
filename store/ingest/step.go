package ingest

import (
	"slices"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/removal"
)

// Event is one thing that the loop hands to Step.
type Event interface{ event() }

// The events.
type (
	// Objects is what a source emitted in one call: one semantic change.
	Objects []object.Event
	// Emits is what a source emitted in several, oldest first.
	Emits []Emit
	// Gained: this process leads, under this epoch. Held are the removals that the leader before held.
	Gained struct {
		Epoch kv.Epoch
		Held  []removal.Hold
	}
	// Lost: it leads no more.
	Lost struct{}
	// Loaded answers Load: the hashes that are stored at present.
	Loaded struct {
		Epoch     kv.Epoch
		Have      map[model.Key]model.Hash
		Secrets   map[model.Key]*model.Secret // those of Have that are Secrets
		Mesh      *model.Mesh                 // the one of Have; nil: there is none, or it cannot be read
		Bytes     map[model.Key]int           // of the stored records; nil where there are no budgets
		After     int64                       // the head's revision; 0: there is none
		Complete  bool                        // nothing needs to be written where nothing differs
		Place     kv.Place                    // of a new term: above all that this process knows of
		At        kv.Position                 // where it was read
		Now       time.Time                   // when
		Contents  kv.Contents                 // what is stored, for the next head
		Unknown   map[string]model.Hash       // by path: records of kinds that this build does not know
		Skippable []string                    // the paths of those of Unknown that close nothing
	}
	// Written answers Write.
	Written struct {
		Epoch   kv.Epoch
		Outcome Outcome
		After   int64             // the head's revision, where the batch was written
		Refused map[model.Key]int // records that are too large, and their bytes: not written
		// Contents is what is stored, as the head says.
		Contents kv.Contents
	}
	// Due answers Wait.
	Due struct{}
)

// Emit is Objects, and when they were emitted.
type Emit struct {
	Objects Objects
	At      time.Time // zero: not known
}

// Outcome is how a write went.
type Outcome uint8

const (
	Done    Outcome = iota // all of it, but for what was refused
	Deposed                // another process leads
	Unknown                // what is stored is not known: load
)

func (Objects) event() {}
func (Emits) event()   {}
func (Gained) event()  {}
func (Lost) event()    {}
func (Loaded) event()  {}
func (Written) event() {}
func (Due) event()     {}

// Effect is one thing that Step wants done.
type Effect interface{ effect() }

// The effects.
type (
	// Load: read what is stored. Again: the last write or load did not go well, pause first.
	Load struct {
		Epoch kv.Epoch
		Again bool
	}
	// Write: commit the batch.
	Write struct {
		Batch kv.Batch
		Since time.Time // of the oldest change in it; zero: it is a full comparison's, or has none that came of an event
	}
	// Wait: hand over Due after the pace of endpoint-only writes.
	Wait struct{}
)

func (Load) effect()  {}
func (Write) effect() {}
func (Wait) effect()  {}

type phase uint8

const (
	idle    phase = iota // not the leader, or nothing is known to be complete yet
	loading              // the full comparison is under way
	ready                // have is what is stored
	writing              // one batch is under way
)

// Stats counts the work that was done.
type Stats struct {
	Normalised uint64 // objects turned into records
	Batches    uint64 // batches written
	Puts       uint64
	Deletes    uint64
}

// State is the ingester without clock and store.
type State struct {
	*inventory
	allowEmpty    bool
	held          *held
	heldFor       time.Duration
	unsynced      map[origin.Origin]bool // sources that have not emitted everything; empty: all have
	remotes       *remotes               // sources of other clusters; nil: there are none
	leading       bool
	phase         phase
	epoch         kv.Epoch
	place         kv.Place // of the newest batch
	after         int64
	have          map[model.Key]model.Hash
	secrets       map[model.Key]*model.Secret // those of have that are Secrets
	queue         *queue                      // keys to be written
	withheld      map[model.Key]bool          // stored keys that a full comparison did not dare to delete: of documents that cannot be read
	refused       map[model.Key]object.Problem
	batch         kv.Batch                 // while writing
	flying        map[model.Key]model.Hash // what batch makes of have; zero: nothing
	complete      bool                     // a head has to be written even if nothing differs
	paced         bool                     // endpoint-only changes wait for Due
	sealing       bool                     // awaitingSeal are being sealed
	resealing     bool                     // some of them could not be
	unsealed      map[model.Key]object.Problem
	reencryptions map[model.Key]reencryption // to be written, because the key encryption key was rotated
	contents      kv.Contents                // what is stored by this leader's doing, and what it found
	unknown       map[string]model.Hash      // by path: what is stored of kinds that this build does not know
	dirty         map[model.Key]bool         // changed by others: to be written, or removed, again
	level         Levelled                   // up to which records are stored
	restore       map[string]kv.Value        // by path: changed by others, as it was before
	altered       bool                       // what is stored is not known: compare when the batch under way has ended
	stats         Stats
}

// NewState is the state before any event.
func NewState(o Options) *State {
	w := newInventory(o.Normal, o.Crashes)
	w.references = newReferences(o.SecretUses)
	if o.Budget != (Budget{}) {
		w.budgeted(o.Budget)
	}
	if o.Sources == nil {
		o.Sources = []origin.Origin{{}}
	}
	unsynced := map[origin.Origin]bool{}
	for _, source := range o.Sources {
		unsynced[source] = true
	}
	var others *remotes
	if o.Remote {
		others = &remotes{whole: map[origin.Origin]bool{}}
	}
	return &State{remotes: others, inventory: w, allowEmpty: o.AllowEmpty, held: newHeld(), heldFor: o.HeldFor, unsynced: unsynced, queue: newQueue(), level: Levelled{Level: model.Level},
		withheld: map[model.Key]bool{}, refused: map[model.Key]object.Problem{}, unsealed: map[model.Key]object.Problem{},
		reencryptions: map[model.Key]reencryption{}, dirty: map[model.Key]bool{}, restore: map[string]kv.Value{}}
}

// Step takes one event.
func (s *State) Step(event Event) []Effect {
	switch e := event.(type) {
	case Objects:
		return s.Step(Emits{{Objects: e}})
	case Emits:
		if s.emitted(e); s.phase == idle {
			return s.start(false)
		}
	case Remotes:
		s.expect(e)
	case Gained:
		if s.leads(e.Epoch) {
			return nil
		}
		s.lose()
		s.leading, s.epoch, s.place, s.held.book = true, e.Epoch, kv.Place{}, removal.NewBook(s.heldFor, e.Held)
		return s.start(false)
	case Lost:
		s.lose()
		return nil
	case Loaded:
		if !s.leads(e.Epoch) || s.phase != loading {
			return nil
		}
		if s.altered { // the level has changed meanwhile
			return s.start(false)
		}
		s.compare(e)
	case Written:
		if !s.leads(e.Epoch) || s.phase != writing {
			return nil
		}
		if effects, on := s.written(e); !on {
			return effects
		} else if more := append(s.flush(), s.seal()...); len(effects)+len(more) > 0 {
			return append(effects, more...)
		}
	case Sealed:
		if !s.leads(e.Epoch) || !s.sealing {
			return nil
		}
		s.sealed(e)
	case Look:
		return s.look()
	case Reencrypted:
		if !s.leads(e.Epoch) {
			return nil
		}
		s.reencrypted(e)
	case Due:
		s.paced = false
	case Levelled:
		return s.levelled(e)
	case Foreign, Recalled, Altered:
		return s.mend(e)
	}
	return append(s.flush(), s.seal()...)
}

// leads says whether this process leads, in this term.
func (s *State) leads(term kv.Epoch) bool { return s.leading && s.epoch == term }

// emitted takes what sources said, in its order.
func (s *State) emitted(emits Emits) {
	s.yielder = loop.NewYielder()
	for _, emit := range emits {
		s.heard = emit.At
		s.heed(emit.Objects)
		s.take(s.obeyed(emit.Objects))
		s.collect()
	}
}

// start begins the full comparison, as soon as this process leads and the source has emitted everything.
func (s *State) start(again bool) []Effect {
	if !s.leading || len(s.unsynced) > 0 {
		return nil
	}
	s.phase, s.queue, s.altered = loading, newQueue(), false // the comparison finds what waited in it
	s.remotes.compared()
	return []Effect{Load{Epoch: s.epoch, Again: again}}
}

// heed takes down which sources have emitted everything. While one of them has not, since it begins again (Forget), nothing is written.
func (s *State) heed(events []object.Event) {
	for _, e := range events {
		switch e.Op {
		case object.Synced:
			s.held.listed(e)
			if !s.remotes.synced(e.ID.Origin) {
				delete(s.unsynced, e.ID.Origin)
			}
		case object.Forget:
			if s.remotes.begins(e.ID.Origin) {
				continue
			}
			s.unsynced[e.ID.Origin], s.phase = true, idle
		case object.Put, object.Delete, object.Broken:
		}
	}
}

func (s *State) lose() {
	s.leading, s.phase, s.have, s.secrets = false, idle, nil, nil
	s.sealing, s.resealing, s.paced, s.complete = false, false, false, false
	s.queue, s.batch, s.flying = newQueue(), kv.Batch{}, nil
	clear(s.withheld)
	clear(s.reencryptions)
	s.forget()
	s.letGoAll()
}

// compare is the full comparison of what should be with what is stored.
func (s *State) compare(e Loaded) {
	s.phase, s.have, s.secrets, s.after = ready, e.Have, e.Secrets, e.After
	s.complete = !e.Complete || s.allowEmpty // the first head of a store waits for the first record, unless an empty mesh is meant
	if s.secrets == nil {
		s.secrets = map[model.Key]*model.Secret{}
	}
	s.shareKeys()
	s.queue, s.batch, s.flying = newQueue(), kv.Batch{}, nil
	s.forget()
	s.contents, s.unknown = e.Contents, e.Unknown
	s.drop(e.Skippable)
	s.place.Chain, s.place.Term = e.Place.Chain, e.Place.Term
	clear(s.withheld)
	clear(s.refused)
	for _, o := range s.objects {
		o.setAdopted(nil)
	}
	s.rebase(e)
	s.recallMesh(e.Mesh)
	s.sealAgain()
	var gone []model.Key
	for key := range e.Have {
		source := s.objects[s.sourceOf(key)]
		switch {
		case source != nil && (source.spoiled || source.waiting) && (len(source.records) == 0 || source.closed || key == model.MeshGatewaysKey && s.want[key] == nil):
			if source.closed { // what is stored is a good form, or closes as much as this one
				s.setRecords(source, nil, nil)
				source.closed = false
			}
			source.setAdopted(append(source.few().adopted, key))
		case s.want[key] != nil || s.awaitingSeal[key] != nil:
		case s.remotes.stand(key.Origin): // its cluster was not listed in full
		case source == nil && len(s.unreadable) > 0:
			s.withheld[key] = true // its object may be in a document that cannot be read
		default:
			gone = append(gone, key)
		}
	}
	s.changed = emptied(s.changed)
	for _, key := range s.removed(e.Now, gone) {
		s.changed[key] = true
	}
	for key := range s.want {
		if s.differs(key) {
			s.changed[key] = true
		}
	}
	s.queue.add(s.changed, time.Time{})
	s.changed = emptied(s.changed)
}

// sourceOf is the object that a record is made of.
func (w *inventory) sourceOf(key model.Key) object.ID {
	if key == model.MeshKey || key == model.MeshGatewaysKey {
		return w.meshID
	}
	return normal.SourceObject(key)
}

// Problems is what is wrong with single objects and with writing them, sorted, as much as is listed (Bounded). The caller does not change it.
func (s *State) Problems() []object.Problem { return s.listed(nil) }

// listed is Problems with those between objects.
func (s *State) listed(between []object.Problem) []object.Problem {
	more := s.more()
	if more = append(more, between...); len(more) == 0 && s.faults.listed <= problem.Most/problem.MostOfObject {
		return s.faults.problems()
	}
	all := slices.Concat(s.faults.problems(), more)
	slices.SortFunc(all, normal.CompareProblems)
	return Bounded(all, s.faults.left())
}

// more is what is wrong with writing objects.
func (s *State) more() []object.Problem {
	more := slices.Clone(s.budgetProblems())
	for _, p := range s.refused {
		more = append(more, p)
	}
	for key, p := range s.unsealed {
		if s.awaitingSeal[key] != nil {
			more = append(more, p)
		}
	}
	more = append(more, s.aboveLevel()...)
	more = append(more, s.removalProblems()...)
	if s.phase == ready && s.after == 0 && len(s.want)+len(s.awaitingSeal) == 0 {
		more = append(more, object.Problem{Code: problem.Held, Severity: problem.Error,
			Message: "the configuration has no object that proxies are told of, and nothing was stored before: replicas are not ready, since an empty mesh may be a folder that is not mounted (--allow-empty has it served)"})
	}
	return more
}

// Stats counts the work that was done.
func (s *State) Stats() Stats {
	s.stats.Normalised = s.normalised
	return s.stats
}
