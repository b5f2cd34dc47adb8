// Package asof publishes the time up to which the leader has read each Kubernetes cluster. The records in etcd contain
// all changes of Pods, ServiceAccounts and Namespaces up to that time, if the leader may read these objects. The
// published time stays valid after a change of leader, and while the API server does not answer.
//
// Owns: the key sources/read in etcd, which the leader writes, and this process's copy of its value.
// Reads: store/kv.
// Never: publishes a time before the records of that time are written.
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
	// Everywhere means that the objects of all namespaces are read. If it is false, objects without a record may exist
	// in the namespaces that are not read.
	Everywhere bool `json:"everywhere"`
	// Namespaces means that the records contain every Namespace of the cluster, also those whose objects are not read.
	// So a Namespace without a record did not exist at Until.
	Namespaces bool `json:"namespaces,omitempty"`
	// NoAccounts means that the leader may not read ServiceAccounts. A ServiceAccount without a record may then exist.
	NoAccounts bool `json:"no_accounts,omitempty"`
}

// Times is this process's copy of the times in etcd. It is safe for concurrent use.
type Times struct {
	mu    sync.Mutex // leaf mutex; guards known
	known map[string]Read
}

// New returns an empty Times. Follow updates it.
func New() *Times { return &Times{} }

// Of returns the state of a cluster. The parameter cluster is the cluster's name, which is empty for the config
// cluster. The zero Read means that nothing is known.
func (t *Times) Of(cluster string) Read {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[cluster]
}

// Follow updates the times from etcd. It blocks until ctx ends, and then returns nil. It returns the error of
// kv.Store.Follow at once, if there is one. While etcd does not answer, the last times stay in effect. If the stored
// times cannot be decoded, this is logged, and all times are unknown.
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

// Lead writes the times of all clusters to etcd during one term of leadership, epoch. The function read returns a time
// for each cluster: this process has passed all changes up to that time to the ingester, which writes the records. A
// nil map means that the times are unknown. Lead keeps the map, which must not change afterwards. The function settled
// reports whether the ingester has written all these changes. Lead calls both functions when it begins, and then every
// ten seconds.
//
// If settled returns true, the records contain all changes up to the times that the previous call of read returned.
// Lead writes these times if one of them is at least 30 seconds later than its written time, or if anything else
// differs. Lead blocks until ctx ends, or until a write fails because another process leads. Other errors of etcd are
// logged, and the write is retried.
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

// due returns the times to write, which are those of the previous call of read. It returns false if the ingester has
// not written all changes, or if the times are less than step later than the written ones and nothing else differs.
func due(written, before map[string]Read, settled bool) (map[string]Read, bool) {
	if !settled || len(before) == 0 {
		return nil, false
	}
	same := maps.EqualFunc(written, before, func(w, b Read) bool {
		return w.Everywhere == b.Everywhere && w.Namespaces == b.Namespaces && w.NoAccounts == b.NoAccounts && b.Until.Sub(w.Until) < step
	})
	return before, !same
}
