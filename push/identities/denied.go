package identities

import (
	"context"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Denied holds the identities that the configuration denies because the CA has revoked them (model.DeniedName). An
// identity is denied until the last of its certificates at the time of its revocation has expired. A process without a
// keyring has no other source of revocations. It is safe for concurrent use.
type Denied struct {
	snapshot func() *mirror.Snapshot
	last     atomic.Pointer[denial] // of the last record
}

// denial holds the denied identities of one record.
type denial struct {
	record model.Record
	ids    map[string]struct{}
}

// NewDenied returns a Denied that reads the newest snapshot, which may be nil.
func NewDenied(snapshot func() *mirror.Snapshot) *Denied { return &Denied{snapshot: snapshot} }

// Has reports whether an identity is denied.
func (d *Denied) Has(id spiffeid.ID) bool {
	_, is := d.now().ids[id.String()]
	return is
}

// now returns the denied identities of the newest snapshot. The pointer changes with the record.
func (d *Denied) now() *denial {
	var record model.Record
	if s := d.snapshot(); s != nil {
		record, _ = s.Get(model.Key{Kind: model.KindAuthorizationPolicy,
			Namespace: s.Mesh().Spec.GetRootNamespace(), Name: model.DeniedName})
	}
	was := d.last.Load()
	if was != nil && was.record == record {
		return was
	}
	now := &denial{record: record, ids: map[string]struct{}{}}
	if p, is := record.(*model.Policy); is {
		for _, id := range model.DeniedIdentities(p) {
			now.ids[id] = struct{}{}
		}
	}
	d.last.Store(now)
	return now
}

// Follow calls changed whenever the record of denied identities has changed. It returns nil when ctx ends. The box
// changes is one of mirror.Mirror's Subscribe.
func (d *Denied) Follow(ctx context.Context, changes *loop.Box[mirror.Change], changed func()) error {
	for was := d.now(); ; {
		if _, err := changes.Get(ctx); err != nil {
			return nil
		}
		if now := d.now(); now != was {
			was = now
			changed()
		}
	}
}
