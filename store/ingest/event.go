package ingest

import (
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/removal"
)

// Event is one input of State.Step.
type Event interface{ event() }

// The events of sources, leadership and the store. Those of sealing, of encrypting again, of levels and of others'
// writes are in their files.
type (
	// Objects is one semantic change: the events that a source emitted in one call.
	Objects []object.Event
	// Emits is several calls of sources, oldest first.
	Emits []Emit
	// Gained begins a term: this process leads under this epoch. Held are the removals that the leader before held.
	Gained struct {
		Epoch kv.Epoch
		Held  []removal.Hold
	}
	// Lost ends a term.
	Lost struct{}
	// Loaded answers Load with the stored hashes.
	Loaded struct {
		Epoch     kv.Epoch
		Have      map[model.Key]model.Hash
		Secrets   map[model.Key]*model.Secret // of the keys in Have
		Mesh      *model.Mesh                 // nil: none is stored, or it cannot be read
		Bytes     map[model.Key]int           // of the stored records; nil where there are no budgets
		After     int64                       // revision of the head; 0: there is no head
		Complete  bool                        // no head needs to be written where no record differs
		Place     kv.Place                    // of a new term: above all that this process knows of
		At        kv.Position                 // of the load
		Now       time.Time
		Contents  kv.Contents           // of the store, for the next head
		Unknown   map[string]model.Hash // records of kinds that this build does not know, by path
		Skippable []string              // paths in Unknown whose records close nothing
	}
	// Written answers Write.
	Written struct {
		Epoch    kv.Epoch
		Outcome  Outcome
		After    int64             // revision of the head, where the batch was written
		Refused  map[model.Key]int // sizes in bytes of the records that are too large and were not written
		Contents kv.Contents       // of the store, as the head says
	}
	// Due answers Wait.
	Due struct{}
)

// Emit is the events of one call of a source.
type Emit struct {
	Objects Objects
	At      time.Time // of the call; zero: not known
}

// Outcome is the result of a write.
type Outcome uint8

const (
	Done    Outcome = iota // all records were written, except refused ones
	Deposed                // another process leads
	Unknown                // the store may have any part of the batch: load
)

func (Objects) event() {}
func (Emits) event()   {}
func (Gained) event()  {}
func (Lost) event()    {}
func (Loaded) event()  {}
func (Written) event() {}
func (Due) event()     {}

// Effect is one act that Step requests of the Loop.
type Effect interface{ effect() }

// The effects.
type (
	// Load reads the stored hashes. Again: the last load or write failed, so the Loop pauses first.
	Load struct {
		Epoch kv.Epoch
		Again bool
	}
	// Write commits a batch.
	Write struct {
		Batch kv.Batch
		Since time.Time // of the oldest change in the batch; zero: no change of a source caused it
	}
	// Wait has the Loop answer Due after the pace of batches of endpoints.
	Wait struct{}
)

func (Load) effect()  {}
func (Write) effect() {}
func (Wait) effect()  {}
