// Package denials reports the revoked identities to the ingester, which stores configuration. The CA revokes
// identities. The reported identities become one mesh-wide DENY policy for all proxies (normal.DeniedID).
//
// Owns: the last list of identities that Run emitted.
// Reads: the revoked identities in the state of the keyring (ca/keyring).
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

// Source emits the revoked identities. All fields are required.
type Source struct {
	// Denied returns the revoked identities that may still have certificates, sorted (keyring.State.Denied). The result
	// known is false while the keyring has not been read.
	Denied  func(now time.Time) (all []keyring.Denial, known bool)
	Changed func() <-chan struct{} // returns a channel that is closed when the result of Denied may have changed
	Emit    func([]object.Event)   // receives one event for each list; may keep the slice
	Log     *slog.Logger
}

// Unknown returns the event that a process without the keyring must emit: object.Broken for normal.DeniedID. The event
// leaves the stored list of denied identities unchanged.
func Unknown() []object.Event {
	return []object.Event{{Op: object.Broken, ID: normal.DeniedID, Location: "keyring", Problem: "the keyring has not been read"}}
}

// Run follows the keyring until ctx ends, and returns nil then. It emits the first list of revoked identities, even if
// the list is empty. After that it emits each changed list. It reads the list again at each change of the keyring, and
// at least every hour. While the keyring has not been read, Run emits nothing. If normal.NewDenied refuses a list, Run
// returns the error.
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
				d.Log.Info("list of revoked identities changed; proxies refuse these identities", obs.KeyIdentities, len(ids))
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

// now returns the identities to deny, and the time to wait until the next call, from 1 min to 1 h. The result known is
// false while the keyring has not been read.
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
