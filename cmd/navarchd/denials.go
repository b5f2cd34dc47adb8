package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// denials tells the ingester which identities the CA has revoked, as a source among others: they become a policy that denies them
// in each proxy of the mesh (normal.DeniedID; issue 12, item 4).
type denials struct {
	state   func() *keyring.State
	changed func() <-chan struct{} // closed when state gives another
	emit    func([]object.Event)
	log     *slog.Logger
}

// denials have the ingester know which identities are revoked; nil where it has nobody to ask.
func (p *process) denials() []loop.Task {
	if p.ingester == nil {
		return nil
	}
	p.ingester.loop.Emit(stands())
	if p.ca == nil {
		p.log.Warn("proxies are not told to refuse identities that the CA revokes while this process leads: it cannot read the keyring (--kek)")
		return nil
	}
	d := denials{state: p.ca.ring.State, changed: p.ca.ring.Changed, emit: p.ingester.loop.Emit, log: p.log}
	return []loop.Task{{Name: "denials", Run: d.run}}
}

// run follows the keyring until ctx ends. An identity is denied until the certificates have ended that it had when it was revoked.
// While nothing of the keyring is known nothing is told, and what is stored stands (stands).
func (d denials) run(ctx context.Context) error {
	var told []string
	for first := true; ; {
		changed := d.changed() // first: a state that comes meanwhile is not missed
		ids, wait, known := deniedNow(d.state(), time.Now())
		if known && (first || !slices.Equal(ids, told)) {
			all, err := normal.NewDenied(ids)
			if err != nil {
				return err
			}
			d.emit([]object.Event{{Op: object.Put, ID: all.ID, Object: all, Location: all.Location}})
			if !first || len(ids) > 0 {
				d.log.Info("the revoked identities that proxies are to refuse", obs.KeyIdentities, len(ids))
			}
			told, first = ids, false
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

// deniedNow are the identities to deny, and how long that stays so at least where the keyring does not change.
func deniedNow(state *keyring.State, now time.Time) (ids []string, stays time.Duration, known bool) {
	all, known := state.Denied(now)
	stays = time.Hour
	for _, one := range all {
		ids = append(ids, one.Identity)
		if !one.Until.IsZero() {
			stays = min(stays, max(one.Until.Sub(now), time.Minute))
		}
	}
	return ids, stays, known
}

// stands is told before any source has told everything: there may be denied identities, so what is stored of them stands.
func stands() []object.Event {
	return []object.Event{{Op: object.Broken, ID: normal.DeniedID, Location: "keyring", Problem: "the keyring has not been read"}}
}
