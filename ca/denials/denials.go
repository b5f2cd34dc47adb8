// Package denials emits the identities that the CA has revoked to the ingester. They become a policy by which each
// proxy of the mesh denies them (normal.DeniedID).
//
// Owns: the list that it emitted last.
// Reads: states of ca/keyring.
// Never: revokes an identity; writes to the store.
package denials

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// Source emits the revoked identities.
type Source struct {
	// Denied returns the revoked identities that may still have certificates, sorted (keyring.State.Denied). known is
	// false while nothing of the keyring could be read.
	Denied  func(now time.Time) (all []keyring.Denial, known bool)
	Changed func() <-chan struct{} // closed when the result of Denied may have changed
	Emit    func([]object.Event)
	Log     *slog.Logger
}

// Unknown is the event of a process that cannot read the keyring, and of one that has not read it yet: the stored list
// of denied identities stays.
func Unknown() []object.Event {
	return []object.Event{{Op: object.Broken, ID: normal.DeniedID, Location: "keyring", Problem: "the keyring has not been read"}}
}

// Run follows the keyring until ctx ends. An identity is denied until the certificates that it had when it was revoked
// have ended. While the keyring is unknown, Run emits nothing and the stored list stays. The error names an identity
// that is not a valid SPIFFE ID.
func (d Source) Run(ctx context.Context) error {
	var emitted []string
	for first := true; ; {
		changed := d.Changed() // before the state is read, so that no change is missed
		ids, wait, known := d.now(time.Now())
		if known && (first || !slices.Equal(ids, emitted)) {
			all, err := normal.NewDenied(ids)
			if err != nil {
				return err
			}
			d.Emit([]object.Event{{Op: object.Put, ID: all.ID, Object: all, Location: all.Location}})
			if !first || len(ids) > 0 {
				d.Log.Info("the list of revoked identities, which proxies refuse, has changed", obs.KeyIdentities, len(ids))
			}
			emitted, first = ids, false
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		if timer.Stop(); ctx.Err() != nil {
			return nil
		}
	}
}

// now returns the identities to deny, and the minimum time until that list changes if the keyring does not.
func (d Source) now(now time.Time) (ids []string, stays time.Duration, known bool) {
	all, known := d.Denied(now)
	stays = time.Hour
	for _, one := range all {
		ids = append(ids, one.Identity)
		if !one.Until.IsZero() {
			stays = min(stays, max(one.Until.Sub(now), time.Minute))
		}
	}
	return ids, stays, known
}
