package ingest

import (
	"time"

	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/origin"
)

// Options are the inputs of State beside events.
type Options struct {
	Normal normal.Options
	// AllowEmpty has every removal obeyed at once, however many objects are gone.
	AllowEmpty bool
	// HeldFor is the time for which removals are held that need no operator's acceptance; 0: until they are accepted.
	HeldFor time.Duration
	// Budget bounds the objects of each tenant; the zero value: no bounds.
	Budget Budget
	// Sources are the origins of the sources that have to emit everything (object.Synced) before anything is written;
	// nil: the zero Origin, which the folder of files has there.
	Sources []origin.Origin
	// Remote: sources of other clusters come and go (Remotes). The leader does not wait for them: the stored records of
	// a cluster stay until its source has emitted everything, or until the cluster is known to be gone.
	Remote bool
	// SecretUses returns the Secrets that a record makes workloads use, in a mesh with this root namespace; nil: they
	// are not reported (Config.Referred).
	SecretUses func(r model.Record, root string) []SecretUse
	// Crashes logs panics over single objects; nil: a log of its own.
	Crashes *crash.Log
}
