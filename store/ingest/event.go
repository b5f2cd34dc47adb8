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

// Events of sources, leadership and the store. Further events are in sources.go, sealing.go, reencrypt.go, level.go,
// foreign.go and credentials.go.
type (
	// Objects contains the events that a source emitted in one call, which are applied together.
	Objects []object.Event
	// Emits contains the events of several calls of sources, the oldest call first.
	Emits []Emit
	// Gained starts a term of leadership: this process leads under Epoch. Held lists the removals that the previous
	// leader held back; it may be nil.
	Gained struct {
		Epoch kv.Epoch
		Held  []removal.Hold
	}
	// Lost ends a term.
	Lost struct{}
	// Loaded is the result of Load: the stored hashes, and the content of some records.
	Loaded struct {
		Epoch     kv.Epoch
		Have      map[model.Key]model.Hash
		Secrets   map[model.Key]*model.Secret // the stored Secrets of the keys in Have, if they decode
		Mesh      *model.Mesh                 // nil: it is missing or unreadable
		Bytes     map[model.Key]int           // sizes of the stored records; nil without a budget of bytes
		After     int64                       // revision of the head (record that each batch writes); 0: there is no head
		Complete  bool                        // the first batch writes a head only if a record differs; Loop sets it if there is no head
		Place     kv.Place                    // position of the term's first head, after all positions that this process knows
		At        kv.Position                 // position in etcd at which the records were read; changes are followed from here
		Now       time.Time                   // time of the load
		Contents  kv.Contents                 // counts and hashes of the stored records by kind, for the next head
		Unknown   map[string]model.Hash       // records of kinds that this build does not know, by path
		Skippable []string                    // paths in Unknown of records that refuse no requests
	}
	// Written is the result of Write.
	Written struct {
		Epoch    kv.Epoch
		Outcome  Outcome
		After    int64             // revision of the new head; 0: the batch was not written, or not in full
		Refused  map[model.Key]int // sizes in bytes of records that were too large, and not written; nil: no such records
		Contents kv.Contents       // counts and hashes of the stored records, according to the head
	}
	// Due is the result of Wait: the interval between batches of endpoints is over.
	Due struct{}
)

// Emit contains the events of one call of a source.
type Emit struct {
	Objects Objects
	At      time.Time // time of the call; zero: unknown
}

// Outcome is the result of a write.
type Outcome uint8

const (
	Done    Outcome = iota // all records were written, except those in Refused
	Deposed                // another process leads
	Unknown                // the store may contain any part of the batch, and must be loaded again
)

func (Objects) event() {}
func (Emits) event()   {}
func (Gained) event()  {}
func (Lost) event()    {}
func (Loaded) event()  {}
func (Written) event() {}
func (Due) event()     {}

// Effect is one action that State.Step requests from the Loop. Its result is passed to Step as a further event.
type Effect interface{ effect() }

// The effects.
type (
	// Load reads the stored hashes. Again is set if the outcome of a write is unknown, or if the store was altered. The
	// Loop then pauses before it reads.
	Load struct {
		Epoch kv.Epoch
		Again bool
	}
	// Write commits a batch.
	Write struct {
		Batch kv.Batch
		Since time.Time // time of the oldest change in the batch; zero: no event of a source caused it
	}
	// Wait requests the event Due after a pause of Config.Pace.
	Wait struct{}
)

func (Load) effect()  {}
func (Write) effect() {}
func (Wait) effect()  {}
