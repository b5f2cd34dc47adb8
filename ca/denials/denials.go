// Package denials tells the ingester which identities the CA has revoked, as a source among others: they become a policy that denies
// them in each proxy of the mesh (normal.DeniedID; issue 12, item 4).
//
// Owns: the list that it emitted last.  Reads: states of ca/keyring.  Never: revokes, nor writes to the store.
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

// Source tells the ingester which identities are revoked.
type Source struct {
	// Denied are the revoked identities that may still have certificates, sorted (keyring.State.Denied); known: false while nothing of
	// the keyring could be read.
	Denied  func(now time.Time) (all []keyring.Denial, known bool)
	Changed func() <-chan struct{} // closed when Denied may say something else
	Emit    func([]object.Event)
	Log     *slog.Logger
}

// Unknown is what the ingester is told before any source has told everything, also by a process that cannot read the keyring: there
// may be denied identities, so what is stored of them stays.
func Unknown() []object.Event {
	return []object.Event{{Op: object.Broken, ID: normal.DeniedID, Location: "keyring", Problem: "the keyring has not been read"}}
}

// Run follows the keyring until ctx ends. An identity is denied until the certificates have ended that it had when it was revoked.
// While nothing of the keyring is known nothing is emitted, and what is stored stays (Unknown). An error is an identity that is none.
func (d Source) Run(ctx context.Context) error {
	var emitted []string
	for first := true; ; {
		changed := d.Changed() // first: a state that comes meanwhile is not missed
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

// now is which identities to deny, and how long that stays so at least where the keyring does not change.
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
