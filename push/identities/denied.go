package identities

import (
	"context"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Denied finds the identities that the CA has revoked. They are in the AuthorizationPolicy model.DeniedName of the root
// namespace. Denied is safe for concurrent use.
type Denied struct {
	snapshot func() *mirror.Snapshot
	last     atomic.Pointer[denial] // result of the last call of the method now
}

// denial holds the denied identities of one version of the AuthorizationPolicy.
type denial struct {
	record model.Record
	ids    map[string]struct{}
}

// NewDenied returns a Denied. The function snapshot returns the newest snapshot, and must be safe for concurrent use.
// While snapshot returns nil, no identity is denied.
func NewDenied(snapshot func() *mirror.Snapshot) *Denied { return &Denied{snapshot: snapshot} }

// Has reports whether the newest snapshot denies an identity.
func (d *Denied) Has(id spiffeid.ID) bool {
	_, is := d.now().ids[id.String()]
	return is
}

// now returns the denied identities of the newest snapshot. If the AuthorizationPolicy has changed since the last call,
// the result is a new pointer.
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

// Follow blocks until ctx ends. It calls the function changed after each change of the AuthorizationPolicy with the
// denied identities. Several changes may cause a single call. Follow always returns nil. The parameter changes is a
// subscription to the changes of snapshots (mirror.Mirror.Subscribe).
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
