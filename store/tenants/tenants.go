// Package tenants tells every replica which namespaces belong to one tenant. Records do not contain the labels of
// namespaces, so the leader writes the labels that the ingester has read to etcd, and all replicas follow them there.
//
// Owns: tenants/labels in etcd (the leader), and this process's copy. Reads: labels, from store/ingest. Never: joins
// two namespaces without knowing that their label is equal.
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

// Tenants are the namespaces that have isolation.TenantLabel, as etcd says. A namespace of which nothing is known is a tenant
// of its own, so that nobody sees too much.
type Tenants struct {
	mu      sync.Mutex // a leaf: guards what follows
	raw     []byte
	values  map[string]string // immutable
	listed  bool
	changed chan struct{} // closed and replaced at every change of the fields above
}

// New returns a Tenants without labels.
func New() *Tenants { return &Tenants{changed: make(chan struct{})} }

// Of returns the tenant of a namespace. It is equal for all namespaces of one tenant.
func (t *Tenants) Of(namespace string) string {
	name, _ := t.Find(namespace)
	return name
}

// Find is Of; known is false until etcd was read.
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

// take stores the labels that the leader wrote. Invalid content leaves the previous labels; a leader will replace it.
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

// Follow updates the labels from etcd until the context ends. While etcd is away the last labels stay. An error means
// that the store is closed.
func (t *Tenants) Follow(ctx context.Context, store *kv.Store, log *slog.Logger) error {
	folders, err := store.Follow(ctx, tenantsFolder)
	if err != nil {
		return err
	}
	for folder := range folders {
		if err := t.take(folder); err != nil {
			log.Warn("the tenants' namespaces cannot be read", obs.KeyError, err)
		}
	}
	return nil
}

// Labels returns the tenant labels by namespace, and a channel that is closed at the next change. nil labels are not
// known yet.
type Labels interface {
	Tenants() (labels map[string]string, changed <-chan struct{})
}

// Lead writes changed labels to etcd while this process leads. It returns when ctx ends or another process leads.
func (t *Tenants) Lead(ctx context.Context, store *kv.Store, epoch kv.Epoch, source Labels, log *slog.Logger) {
	for ctx.Err() == nil {
		stored, listed, restored := t.stored()
		labels, changed := source.Tenants()
		raw, err := json.Marshal(labels) // sorted by namespace
		var again <-chan time.Time
		if listed && labels != nil && !bytes.Equal(raw, stored) && !(len(labels) == 0 && stored == nil) {
			if len(raw) > kv.MaxRecordBytes/2 {
				err = fmt.Errorf("%d namespaces with the label are %d bytes, at most %d fit", len(labels), len(raw), kv.MaxRecordBytes/2)
			}
			if err == nil {
				_, err = store.ChangeFenced(ctx, epoch, kv.BlobChange{Put: []kv.Blob{{Path: tenantsPath, Raw: raw}}})
			}
			if errors.Is(err, kv.ErrDeposed) {
				return
			}
			if again = time.After(5 * time.Second); err != nil && ctx.Err() == nil {
				log.Warn("the tenants' namespaces cannot be written to etcd; trying again", obs.KeyError, err)
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
