package ingest

import (
	"time"

	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/origin"
)

// Options is what Step's results depend on beside its events.
type Options struct {
	Normal normal.Options
	// AllowEmpty has every removal obeyed at once, however much is gone.
	AllowEmpty bool
	// HeldFor is for how long removals are held that do not wait for an operator's word; 0: until they are accepted.
	HeldFor time.Duration
	// Budget bounds what each tenant may have; the zero value: nothing does.
	Budget Budget
	// Sources are the origins of those that have to have emitted everything (object.Synced) before anything is written; nil: the zero Origin,
	// which the folder of files has there.
	Sources []origin.Origin
	// Remote: sources of other clusters come and go (Remotes). Nothing waits for them: what is stored of one stands until it has emitted
	// everything, or until it is known that there is none.
	Remote bool
	// SecretUses says which Secrets a record makes workloads use, in a mesh with this root namespace; nil: nobody asks (Config.Referred).
	SecretUses func(r model.Record, root string) []SecretUse
	// Crashes is where panics over single objects go; nil: one of its own.
	Crashes *crash.Log
}
