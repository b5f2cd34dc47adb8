// Package tenants distributes the tenants of namespaces to all replicas. A tenant is a group of namespaces with an
// equal value of the label isolation.TenantLabel, or one namespace without the label. Stored configuration does not
// contain the labels of namespaces. Therefore the leader copies the labels from its ingester to etcd, and all replicas
// follow the copy in etcd.
//
// Owns: tenants/labels in etcd (the leader), and this process's copy. Reads: labels, from store/ingest. Never: puts two
// namespaces into one tenant unless their labels are known to be equal.
package tenants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Paths of the labels in etcd.
const (
	tenantsFolder = "tenants/"
	tenantsPath   = tenantsFolder + "labels"
)

// Tenants maps namespaces to tenants, by the values of isolation.TenantLabel in etcd. A namespace without a known label
// is a tenant of its own, so that a missing label never shows a tenant more than its own objects. Tenants is safe for
// concurrent use.
type Tenants struct {
	mu      sync.Mutex // guards the fields below; no other lock is acquired while it is held
	raw     []byte
	values  map[string]string // immutable
	listed  bool
	changed chan struct{} // closed and replaced at every change of the fields above
}

// New returns a Tenants without labels.
func New() *Tenants { return &Tenants{changed: make(chan struct{})} }

// Of returns the tenant of a namespace (isolation.TenantOf): a text with the value of its label, or the namespace
// itself without a known label. The result is equal for all namespaces of one tenant.
func (t *Tenants) Of(namespace string) string {
	name, _ := t.Find(namespace)
	return name
}

// Find returns the tenant of a namespace, as Of does, and whether the labels are known. The result known is false until
// Follow has read the labels from etcd. While known is false, name is the namespace itself. After the first reading,
// known is true even if etcd has no labels, or labels that cannot be decoded.
func (t *Tenants) Find(namespace string) (name string, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return isolation.TenantOf(namespace, t.values[namespace]), t.listed
}

func (t *Tenants) stored() (raw []byte, listed bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.raw, t.listed, t.changed
}

// take applies the labels in etcd. An error means that the JSON is invalid. In this case the previous labels stay in
// effect, and the leader replaces the JSON.
func (t *Tenants) take(f kv.Folder) (err error) {
	var raw []byte
	for _, blob := range f.Blobs {
		if blob.Path == tenantsPath {
			raw = blob.Raw
		}
	}
	values := map[string]string{}
	if raw != nil {
		err = json.Unmarshal(raw, &values)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw, t.listed = raw, true; err == nil {
		t.values = values
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return err
}

// Follow updates the labels from etcd until ctx ends, and then returns nil. While etcd does not answer, the last labels
// stay in effect. An error means that kv.Store.Follow does not allow the folder.
func (t *Tenants) Follow(ctx context.Context, store *kv.Store, log *slog.Logger) error {
	folders, err := store.Follow(ctx, tenantsFolder)
	if err != nil {
		return err
	}
	for folder := range folders {
		if err := t.take(folder); err != nil {
			log.Warn("stored tenant labels cannot be decoded; the previous labels stay in effect", obs.KeyError, err)
		}
	}
	return nil
}

// Labels is the source of the labels.
type Labels interface {
	// Tenants returns the values of isolation.TenantLabel by namespace, and a channel that is closed at the next
	// change. The result labels is nil until the values are known. Neither side modifies the map.
	Tenants() (labels map[string]string, changed <-chan struct{})
}

// Lead writes changed labels from source to etcd while this process leads. The parameter epoch identifies the term of
// leadership. Lead returns when ctx ends, or when a write fails because this term has ended. Other failures are logged,
// and the write is repeated after 5 s. Labels whose JSON has more than kv.MaxRecordBytes/2 bytes are logged at each
// change, and not written. Follow must run at the same time, because Lead writes nothing until Follow has read the
// stored labels.
func (t *Tenants) Lead(ctx context.Context, store *kv.Store, epoch kv.Epoch, source Labels, log *slog.Logger) {
	for ctx.Err() == nil {
		stored, listed, restored := t.stored()
		labels, changed := source.Tenants()
		raw, err := json.Marshal(labels) // sorted by namespace
		var again <-chan time.Time
		switch differs := listed && labels != nil && !bytes.Equal(raw, stored) && !(len(labels) == 0 && stored == nil); {
		case !differs:
		case len(raw) > kv.MaxRecordBytes/2:
			log.Warn("tenant labels are too large for etcd; the labels written last stay in effect", obs.KeyError,
				fmt.Errorf("tenant labels of %d namespaces have %d bytes, more than the limit of %d", len(labels), len(raw),
					kv.MaxRecordBytes/2))
		default:
			if err == nil {
				_, err = store.ChangeFenced(ctx, epoch, kv.BlobChange{Put: []kv.Blob{{Path: tenantsPath, Raw: raw}}})
			}
			if errors.Is(err, kv.ErrDeposed) {
				return
			}
			if again = time.After(5 * time.Second); err != nil && ctx.Err() == nil {
				log.Warn("tenant labels cannot be written to etcd; trying again", obs.KeyError, err)
			}
		}
		select {
		case <-restored:
		case <-changed:
		case <-again:
		case <-ctx.Done():
		}
	}
}
