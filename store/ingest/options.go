package ingest

import (
	"time"

	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/origin"
)

// Options is the configuration of a State.
type Options struct {
	Normal normal.Options // options of the conversion of objects to records
	// AllowEmpty applies all removals at once, however many objects are gone, and holds none back. AllowEmpty also
	// permits the first batch of a store to be empty.
	AllowEmpty bool
	// HeldFor is the time after which held removals apply, unless they have to wait for an operator. 0: removals are
	// held until they are accepted or the objects are back.
	HeldFor time.Duration
	// Budget bounds the configuration of each tenant; the zero value: no bounds.
	Budget Budget
	// Sources lists the origins of the sources that have to emit everything (object.Synced) before anything is written.
	// If it is nil, only the zero Origin has to, with which a folder of files may emit Synced. If it is empty but not
	// nil, nothing has to be emitted first.
	Sources []origin.Origin
	// Remote enables sources of other clusters. The event Remotes adds and removes them. The leader does not wait for
	// them: the stored records of a cluster stay until its source has emitted everything, or the cluster is removed.
	Remote bool
	// SecretUses returns the Secrets and ConfigMaps that a record makes workloads use. The parameter root is the root
	// namespace of the mesh. If SecretUses is nil, uses are not tracked, and Config.Referred is not called.
	SecretUses func(r model.Record, root string) []SecretUse
	// Crashes logs panics during the normalisation and analysis of objects; nil: a new Log.
	Crashes *crash.Log
}
