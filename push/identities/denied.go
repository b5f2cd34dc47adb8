package identities

import (
	"context"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Denied says which identities the configuration denies, because the CA has revoked them (model.DeniedName): until the last certificate
// has ended that they had when they were revoked. It is what a process without a keyring knows of revocations. Safe for concurrent use.
type Denied struct {
	snapshot func() *mirror.Snapshot
	last     atomic.Pointer[denial] // what was made of the record last
}

// denial is what one record says.
type denial struct {
	record model.Record
	ids    map[string]struct{}
}

// NewDenied reads the newest snapshot; that is nil while nothing is known.
func NewDenied(snapshot func() *mirror.Snapshot) *Denied { return &Denied{snapshot: snapshot} }

// Has says whether an identity is denied.
func (d *Denied) Has(id spiffeid.ID) bool {
	_, is := d.now().ids[id.String()]
	return is
}

func (d *Denied) now() *denial {
	var record model.Record
	if s := d.snapshot(); s != nil {
		record, _ = s.Get(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: s.Mesh().Spec.GetRootNamespace(), Name: model.DeniedName})
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

// Follow calls changed whenever other identities are denied than before, until ctx ends; changes is what mirror.Mirror's Subscribe gives.
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
