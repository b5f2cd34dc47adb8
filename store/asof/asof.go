// Package asof publishes the time up to which the leader has read each Kubernetes cluster. The records in etcd contain
// all changes of Pods, ServiceAccounts and Namespaces up to that time, as far as the leader may read these. This stays
// true after a change of leader, and while the API server does not answer.
//
// Owns: sources/read in etcd (the leader), and this process's copy. Reads: store/kv. Never: publishes a time before the
// records of that time are written.
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

// Paths in etcd.
const (
	folder = "sources/"
	path   = folder + "read"
)

const (
	every = 10 * time.Second // interval between two reads of a leader
	step  = 30 * time.Second // a time is written once it is at least this much later than the last written time
)

// Read states up to which time a cluster has been read, and which of its objects are read.
type Read struct {
	Until time.Time `json:"until"` // by the leader's clock; zero: nothing is known
	// Everywhere means that the objects of all namespaces are read. Otherwise objects without a record may exist in the
	// other namespaces.
	Everywhere bool `json:"everywhere"`
	// Namespaces means that the records contain every Namespace of the cluster, also those whose objects are not read.
	// So a Namespace without a record did not exist at Until.
	Namespaces bool `json:"namespaces,omitempty"`
	// NoAccounts means that ServiceAccounts may not be read, so that nothing can be concluded from their records.
	NoAccounts bool `json:"no_accounts,omitempty"`
}

// Times is this process's copy of the times in etcd. It is safe for concurrent use.
type Times struct {
	mu    sync.Mutex // leaf mutex; guards known
	known map[string]Read
}

// New returns an empty Times. Follow updates it.
func New() *Times { return &Times{} }

// Of returns the state of a cluster. cluster is its name in origins, which is empty for the config cluster. The zero
// Read means that nothing is known.
func (t *Times) Of(cluster string) Read {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[cluster]
}

// Follow updates the times from etcd. It blocks until ctx ends, and then returns nil. It returns the error of
// kv.Store.Follow at once, if there is one. While etcd does not answer, the last times stay in effect. Stored times
// that cannot be decoded are logged, and then all times are unknown.
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
				log.Warn("the stored times up to which clusters were read cannot be decoded: until the leader writes new ones, no caller is "+
					"refused because an object is missing", obs.KeyError, err)
				known = nil
			}
		}
		t.mu.Lock()
		t.known = known
		t.mu.Unlock()
	}
	return nil
}

// Lead writes the times of all clusters to etcd during one term of leadership, epoch. The function read returns the
// times up to which this process has passed all changes to the ingester, by cluster; nil: unknown. Lead keeps the map,
// which must not change afterwards. The function settled reports whether the ingester has written all these changes.
// Lead calls both functions at once, and then every ten seconds.
//
// If settled returns true, the records contain all changes up to the result of the previous read. Lead writes that
// result if a time is at least 30 seconds later than the written time, or if anything else differs. Lead blocks until
// ctx ends, or until a write fails because another process leads. Other errors of etcd are logged, and the write is
// retried.
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

// due returns the times to write, which are the result of the previous read. It returns false if not everything is
// settled, or if the result hardly differs from the written times.
func due(written, before map[string]Read, settled bool) (map[string]Read, bool) {
	if !settled || len(before) == 0 {
		return nil, false
	}
	same := maps.EqualFunc(written, before, func(w, b Read) bool {
		return w.Everywhere == b.Everywhere && w.Namespaces == b.Namespaces && w.NoAccounts == b.NoAccounts && b.Until.Sub(w.Until) < step
	})
	return before, !same
}
