package keyring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/kv"
)

const tries = 8 // of a change that lost to another transaction

// clockOff returns an error while this replica's clock keeps it from changing the keyring.
func (k *Keyring) clockOff() error {
	if err := k.cfg.Clock.Off(); err != nil {
		return fmt.Errorf("the keyring cannot be changed by this replica: %w", err)
	}
	return nil
}

// update changes the record; only the loop calls it. change gets a copy and returns the changed record (nil: unchanged)
// and the blobs that belong to it. It is called again if another write came first.
func (k *Keyring) update(ctx context.Context, change func(*record) (*record, []kv.Blob, error)) error {
	if err := k.clockOff(); err != nil {
		return err
	}
	for range tries {
		if err := k.refresh(ctx); err != nil {
			return err
		}
		if k.ring == nil {
			return fmt.Errorf("the keyring cannot be changed now: %w", k.State().Sealed)
		}
		next, put, err := change(k.ring.rec.clone())
		if err != nil || next == nil {
			return err
		}
		var drop []string
		for _, e := range k.ring.rec.Epochs {
			if now := next.epoch(e.Number); e.Status != Retired && (now == nil || now.Status == Retired) {
				drop = append(drop, sealedPath(e.Number), crlPath(e.Number))
			}
		}
		err = k.write(ctx, next, k.ring.revision, put, drop)
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		return errors.Join(err, k.refresh(ctx))
	}
	return fmt.Errorf("the keyring changed %d times meanwhile: %w", tries, kv.ErrConflict)
}

// advance ends a rotation whose root all holders have, and retires epochs without leaves in use. It prepares a
// successor for an ageing root.
func (k *Keyring) advance(ctx context.Context) error {
	return k.update(ctx, func(r *record) (*record, []kv.Blob, error) {
		sure, err := k.cfg.Clock.Sure()
		if err != nil {
			return nil, nil, err
		}
		if ageing(r, k.cfg.Now()) {
			return k.successor(ctx, r, false)
		}
		if r.in(Prepared) == nil && r.in(Retiring) == nil {
			k.index = nil
			k.waiting.Store(0)
			if !outlived(r, sure) {
				return nil, nil, nil
			}
		} else if err := k.readJournal(ctx); err != nil {
			return nil, nil, err
		}
		next, happened, waiting := step(r, sure, k.index)
		k.waiting.Store(int64(waiting))
		for _, what := range happened {
			k.log.Info("keyring: " + what)
		}
		return next, nil, nil
	})
}

// readJournal updates the journal index. The record must have been read before.
func (k *Keyring) readJournal(ctx context.Context) error {
	if k.index == nil {
		k.index = newJournalIndex()
	}
	// Allowances first: renewals from one are in the journal before the next allowance replaces it.
	allowances, err := k.readAllowances(ctx)
	if err != nil {
		return err
	}
	blobs, at, err := k.cfg.Store.Blobs(ctx, journalFolder, k.index.at)
	if err != nil {
		return err
	}
	if err := k.index.read(blobs, at); err != nil {
		k.index = nil
		return err
	}
	if sure, err := k.cfg.Clock.Sure(); err == nil {
		k.index.prune(sure)
	}
	k.index.allowances = allowances
	return nil
}

func (k *Keyring) successor(ctx context.Context, r *record, force bool) (*record, []kv.Blob, error) {
	now := k.cfg.Now()
	a, err := issue.SelfSigned(k.cfg.TrustDomain, r.Highest+1, k.cfg.RootTTL, now, nil)
	if err != nil {
		return nil, nil, err
	}
	r.add(a, originSelf, now).Forced = force
	put, err := k.enrol(ctx, r, a)
	if err == nil {
		k.log.Info("keyring: a new root is published", slog.Uint64("epoch", r.Highest))
	}
	return r, put, err
}

// Rotate prepares a new root. The root is published at once, and signs when the holders of all unexpired leaves have
// it; with force, it signs without waiting for them. force also applies to a rotation that already waits.
//
// ErrRotating: a rotation is under way. A mesh with the user's own CA rotates when its files change; there, Rotate can
// only force a waiting rotation.
func (k *Keyring) Rotate(ctx context.Context, force bool) error {
	return k.ask(ctx, func(ctx context.Context) error {
		err := k.update(ctx, func(r *record) (*record, []kv.Blob, error) {
			switch p := r.in(Prepared); {
			case p != nil && force:
				p.Forced = true
				return r, nil, nil
			case p != nil:
				return nil, nil, fmt.Errorf("%w: to epoch %d, since %s", ErrRotating, p.Number, p.Since.UTC().Format(time.RFC3339))
			}
			if u, err := k.userCA(); err != nil || !u.None && !u.FirstOnly {
				return nil, nil, errors.Join(errOwnCA, err)
			}
			return k.successor(ctx, r, force)
		})
		if err != nil {
			return err
		}
		return k.advance(ctx)
	})
}

// Abort withdraws a prepared root before it has signed. ErrNoRotation: no root is prepared.
func (k *Keyring) Abort(ctx context.Context) error {
	return k.ask(ctx, func(ctx context.Context) error {
		return k.update(ctx, func(r *record) (*record, []kv.Blob, error) {
			p := r.in(Prepared)
			if p == nil {
				return nil, nil, ErrNoRotation
			}
			r.retire(p, k.cfg.Now())
			return r, nil, nil
		})
	})
}

// Report is the keyring's status for operators.
type Report struct {
	Epochs     []Epoch  `json:"epochs"`
	Generation uint64   `json:"generation"`
	Sealed     string   `json:"sealed,omitempty"`
	Alarm      string   `json:"alarm,omitempty"`
	Rotating   uint64   `json:"rotating,omitempty"` // the prepared epoch, which waits to sign; 0: none
	Waiting    []Holder `json:"waiting,omitempty"`  // holders without the prepared epoch's root
	// Until maps each retiring epoch to the end of its last leaf.
	Until      map[uint64]time.Time `json:"until,omitempty"`
	Serials    int                  `json:"revokedSerials"`
	Identities []string             `json:"revokedIdentities,omitempty"`
	Denied     []Denial             `json:"denied,omitempty"` // those of Identities that proxies refuse
	// KEKs are the provider's names of the key encryption keys that etcd's content needs. There is one, except for
	// about a minute after a rotation. Other key encryption keys are no longer needed.
	KEKs []string `json:"keks,omitempty"`
}

// Status reads the keyring and, during a rotation, the journal. Errors: etcd does not answer, or an entry of the
// journal does not decode.
func (k *Keyring) Status(ctx context.Context) (*Report, error) {
	var out *Report
	err := k.ask(ctx, func(ctx context.Context) error {
		s := k.State()
		out = &Report{Epochs: s.Epochs, Generation: s.Generation, Serials: len(s.serials)}
		out.Identities = slices.Sorted(maps.Keys(s.identities))
		out.Denied, _ = s.Denied(k.cfg.Now())
		if s.Sealed != nil {
			out.Sealed = s.Sealed.Error()
		}
		if s.Alarm != nil {
			out.Alarm = s.Alarm.Error()
		}
		if k.ring == nil {
			return nil
		}
		blobs, _, err := k.cfg.Store.Blobs(ctx, keysFolder, 0)
		if err != nil {
			return err
		}
		if out.KEKs, err = k.keksOfSecrets(ctx, keks(blobs)); err != nil {
			return err
		}
		p, old := k.ring.rec.in(Prepared), k.ring.rec.in(Retiring)
		if p == nil && old == nil {
			return nil
		}
		if err := k.readJournal(ctx); err != nil {
			return err
		}
		if p != nil {
			out.Rotating, out.Waiting = p.Number, k.index.missing(p.Published, k.cfg.Now())
		}
		out.Until = map[uint64]time.Time{}
		for _, e := range k.ring.rec.Epochs {
			if e.Status == Retiring {
				out.Until[e.Number] = k.index.lastEnd(e.Number)
			}
		}
		return nil
	})
	return out, err
}

// Revoked is the result of a revocation.
type Revoked struct {
	Serials []string // newly listed: the named certificates and their renewals
	Unknown []string // named serial numbers that the journal lacks; every issuer's list has them
	Denied  []Denial // all named identities, also those that were revoked before
}

// Revoke adds certificates, with their renewals, to their issuers' lists, and denies identities (State.Denied). When it
// returns, the new lists are in etcd, and these identities get no certificates from then on. Errors: those of etcd, a
// malformed serial number or identity, and a full list. Except for etcd's errors nothing was changed; but if serial
// numbers do not fit, the identities are denied already.
func (k *Keyring) Revoke(ctx context.Context, serials, identities []string) (*Revoked, error) {
	var out *Revoked
	err := k.ask(ctx, func(ctx context.Context) (err error) {
		out, err = k.revokeAll(ctx, serials, identities)
		return err
	})
	return out, err
}

// revokeAll is Revoke for the loop.
func (k *Keyring) revokeAll(ctx context.Context, serials, identities []string) (out *Revoked, err error) {
	// First the identities get no new certificates. Then the journal has all certificates that they hold.
	if err := k.update(ctx, func(r *record) (*record, []kv.Blob, error) { return deny(r, identities, k.cfg.Now()) }); err != nil {
		return nil, err
	}
	err = k.update(ctx, func(r *record) (_ *record, put []kv.Blob, err error) {
		if err := k.readJournal(ctx); err != nil {
			return nil, nil, err
		}
		if out, err = revoke(r, k.index, serials, k.cfg.MaxRevoked, k.cfg.Now()); err != nil {
			return nil, nil, err
		}
		if out.Denied = setDenialEnds(r, k.index, identities, k.cfg.Now()); len(out.Serials)+len(out.Denied) == 0 {
			return nil, nil, nil
		}
		if len(out.Serials) > 0 {
			put, err = k.lists(r)
		}
		return r, put, err
	})
	return out, err
}

// Restore ends the denial of identities: they get certificates again. The certificates that they had when they were
// denied go into the revocation lists. If the lists are full, the error says until when.
func (k *Keyring) Restore(ctx context.Context, identities []string) error {
	return k.ask(ctx, func(ctx context.Context) error {
		return k.update(ctx, func(r *record) (*record, []kv.Blob, error) {
			if err := k.readJournal(ctx); err != nil {
				return nil, nil, err
			}
			if err := restore(r, k.index, identities, k.cfg.MaxRevoked, k.cfg.Now()); err != nil {
				return nil, nil, err
			}
			put, err := k.lists(r)
			return r, put, err
		})
	})
}

// lists signs the next revocation list of every issuer that may sign lists.
func (k *Keyring) lists(r *record) ([]kv.Blob, error) {
	var put []kv.Blob
	for i := range r.Epochs {
		e := &r.Epochs[i]
		if e.Status == Retired {
			continue
		}
		a, err := e.authority(k.ring.keys[e.Number])
		if err != nil {
			return nil, err
		}
		list, err := k.list(r, e, a)
		if err != nil {
			return nil, err
		}
		if list != nil {
			put = append(put, *list)
		}
	}
	return put, nil
}
