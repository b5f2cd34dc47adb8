// Package asof lets every replica know the time up to which the leader has read a Kubernetes cluster: the records have all Pods, ServiceAccounts
// and Namespaces that the cluster had at that time. That stays true whoever leads, and whether or not the API server answers.
//
// Owns: sources/read in etcd (the leader), and what this process knows of it.  Reads: nothing of ours but the store.  Never: says more than
// was written to the records.
package asof

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Where it is in etcd.
const (
	folder = "sources/"
	path   = folder + "read"
)

const (
	every = 10 * time.Second // how often a leader looks
	step  = 30 * time.Second // how much newer a time is before it is written
)

// Read is up to when a cluster has been read.
type Read struct {
	Until time.Time `json:"until"` // by the leader's clock
	// Everywhere says that all of its namespaces are read; false: only some, and nothing follows from a namespace of which nothing is known.
	Everywhere bool `json:"everywhere"`
	// Namespaces says that the records have a Namespace for each that there was, be it read or not: one that they have not is gone.
	Namespaces bool `json:"namespaces,omitempty"`
	// NoAccounts says that ServiceAccounts may not be read, so that nothing follows from what the records have of them.
	NoAccounts bool `json:"no_accounts,omitempty"`
}

// Times are what etcd says. Safe for concurrent use.
type Times struct {
	mu    sync.Mutex // a leaf
	known map[string]Read
}

// New knows nothing.
func New() *Times { return &Times{} }

// Of is up to when a cluster has been read, by its name in origins; the zero Read: nothing is known.
func (t *Times) Of(cluster string) Read {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[cluster]
}

// Follow keeps them as etcd says, until the context ends; while etcd is away what was known stays. An error is a store that is closed.
func (t *Times) Follow(ctx context.Context, store *kv.Store, log *slog.Logger) error {
	states, err := store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	for state := range states {
		known := map[string]Read{}
		for _, blob := range state.Blobs {
			if blob.Path != path {
				continue
			}
			if err := json.Unmarshal(blob.Raw, &known); err != nil {
				log.Warn("the stored times up to which clusters were read cannot be decoded: until they can be, no caller is refused because an "+
					"object is missing", obs.KeyError, err)
				known = nil
			}
		}
		t.mu.Lock()
		t.known = known
		t.mu.Unlock()
	}
	return nil
}

// Lead writes, while this process leads, up to when each cluster has been read. read says up to when everything was emitted, settled that
// nothing waits to be written: what was emitted before the look before is in the records then. It returns when ctx ends or another process
// leads.
func Lead(ctx context.Context, store *kv.Store, epoch kv.Epoch, read func() map[string]Read, settled func() bool, log *slog.Logger) {
	lead(ctx, store, epoch, read, settled, every, log)
}

func lead(ctx context.Context, store *kv.Store, epoch kv.Epoch, read func() map[string]Read, settled func() bool, every time.Duration,
	log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var written, before map[string]Read
	for {
		now := read()
		if next, write := due(written, before, settled()); write {
			raw, err := json.Marshal(next)
			if err == nil {
				_, err = store.ChangeFenced(ctx, epoch, kv.BlobChange{Put: []kv.Blob{{Path: path, Raw: raw}}})
			}
			switch {
			case err == nil:
				written = next
			case errors.Is(err, kv.ErrDeposed):
				return
			case ctx.Err() == nil:
				log.Warn("the times up to which clusters were read cannot be written to etcd; trying again", obs.KeyError, err)
			}
		}
		before = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// due is what is to be written: what a look before had, where nothing waits now, and where it says more than what is written.
func due(written, before map[string]Read, settled bool) (map[string]Read, bool) {
	if !settled || len(before) == 0 {
		return nil, false
	}
	same := maps.EqualFunc(written, before, func(w, b Read) bool {
		return w.Everywhere == b.Everywhere && w.Namespaces == b.Namespaces && w.NoAccounts == b.NoAccounts && b.Until.Sub(w.Until) < step
	})
	return before, !same
}
