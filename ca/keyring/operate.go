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

const tries = 8 // of a change that others are ahead of

// clockOff is why this replica's clock keeps it from changing the keyring; nil: nothing does.
func (k *Keyring) clockOff() error {
	if err := k.cfg.Clock.Off(); err != nil {
		return fmt.Errorf("the keyring cannot be changed by this replica: %w", err)
	}
	return nil
}

// update changes the record, by the loop only. change gets a copy, and returns what it becomes (nil: as it is) and what
// blobs come with it; it is called again where another wrote first.
func (k *Keyring) update(ctx context.Context, change func(*record) (*record, []kv.Blob, error)) error {
	if err := k.clockOff(); err != nil {
		return err
	}
	for range tries {
		if err := k.look(ctx); err != nil {
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
		return errors.Join(err, k.look(ctx))
	}
	return fmt.Errorf("the keyring changed %d times meanwhile: %w", tries, kv.ErrConflict)
}

// advance ends what can be ended: a rotation whose root everybody has, an epoch of which no leaf is in use. It prepares a
// successor for a root that grows old.
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
			k.census = nil
			k.waiting.Store(0)
			if !outlived(r, sure) {
				return nil, nil, nil
			}
		} else if err := k.count(ctx); err != nil {
			return nil, nil, err
		}
		next, happened, waiting := step(r, sure, k.census)
		k.waiting.Store(int64(waiting))
		for _, what := range happened {
			k.log.Info("keyring: " + what)
		}
		return next, nil, nil
	})
}

// count brings the census up to date. It must come after the record was read.
func (k *Keyring) count(ctx context.Context) error {
	if k.census == nil {
		k.census = newCensus()
	}
	// Allowances first: what was issued from one is in the journal before the next takes its place.
	allowances, err := k.promised(ctx)
	if err != nil {
		return err
	}
	blobs, at, err := k.cfg.Store.Blobs(ctx, journalFolder, k.census.at)
	if err != nil {
		return err
	}
	if err := k.census.read(blobs, at); err != nil {
		k.census = nil
		return err
	}
	if sure, err := k.cfg.Clock.Sure(); err == nil {
		k.census.prune(sure)
	}
	k.census.allowances = allowances
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

// Rotate prepares a new root: it is published at once, and signs when the holder of every unexpired leaf has it. force:
// it signs without waiting for them; given while a rotation waits, that one is forced. ErrRotating: one is under way. A
// mesh with the user's own CA rotates when its files change; only a rotation that waits can be forced then.
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

// Abort takes a prepared root back, before it has signed. ErrNoRotation: there is none, or it signs already.
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

// Report is the keyring for people.
type Report struct {
	Epochs     []Epoch  `json:"epochs"`
	Generation uint64   `json:"generation"`
	Sealed     string   `json:"sealed,omitempty"`
	Alarm      string   `json:"alarm,omitempty"`
	Rotating   uint64   `json:"rotating,omitempty"` // the epoch that waits to sign; 0: none
	Waiting    []Holder `json:"waiting,omitempty"`  // who does not have its root yet
	// Until is, for each epoch that is retiring, when the last of its leaves ends.
	Until      map[uint64]time.Time `json:"until,omitempty"`
	Serials    int                  `json:"revokedSerials"`
	Identities []string             `json:"revokedIdentities,omitempty"`
	Denied     []Denial             `json:"denied,omitempty"` // of Identities, those that proxies refuse
	// KEKs are the key encryption keys that what is in etcd needs, as their provider calls them: one, but for a minute after
	// it was rotated. What is not among them is no longer needed.
	KEKs []string `json:"keks,omitempty"`
}

// Status reads the keyring and, while a rotation is under way, the journal. Errors: etcd does not answer, or something in the journal does not open.
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
		if err := k.count(ctx); err != nil {
			return err
		}
		if p != nil {
			out.Rotating, out.Waiting = p.Number, k.census.missing(p.Published, k.cfg.Now())
		}
		out.Until = map[uint64]time.Time{}
		for _, e := range k.ring.rec.Epochs {
			if e.Status == Retiring {
				out.Until[e.Number] = k.census.last(e.Number)
			}
		}
		return nil
	})
	return out, err
}

// Revoked says what a revocation did.
type Revoked struct {
	Serials []string // that are newly in the lists: those named, and those that renewed them
	Unknown []string // of these: not in the journal, and so in the list of every issuer
	Denied  []Denial // the identities, also those that were revoked before
}

// Revoke puts certificates, and those that renewed them, into their issuers' lists, and denies identities (State.Denied). When it
// returns, the new lists are in etcd, and nothing is issued for these identities from then on. An error that is not etcd's
// names what does not fit, or is no serial number or identity; nothing was changed then but, where serial numbers do not fit,
// the identities.
func (k *Keyring) Revoke(ctx context.Context, serials, identities []string) (*Revoked, error) {
	var out *Revoked
	err := k.ask(ctx, func(ctx context.Context) (err error) {
		out, err = k.revokeAll(ctx, serials, identities)
		return err
	})
	return out, err
}

// revokeAll is Revoke, by the loop.
func (k *Keyring) revokeAll(ctx context.Context, serials, identities []string) (out *Revoked, err error) {
	// First nothing new is issued for the identities; then the journal has all that they hold.
	if err := k.update(ctx, func(r *record) (*record, []kv.Blob, error) { return deny(r, identities, k.cfg.Now()) }); err != nil {
		return nil, err
	}
	err = k.update(ctx, func(r *record) (_ *record, put []kv.Blob, err error) {
		if err := k.count(ctx); err != nil {
			return nil, nil, err
		}
		if out, err = revoke(r, k.census, serials, k.cfg.MaxRevoked, k.cfg.Now()); err != nil {
			return nil, nil, err
		}
		if out.Denied = bound(r, k.census, identities, k.cfg.Now()); len(out.Serials)+len(out.Denied) == 0 {
			return nil, nil, nil
		}
		if len(out.Serials) > 0 {
			put, err = k.lists(r)
		}
		return r, put, err
	})
	return out, err
}

// Restore takes the denial of identities back: they get certificates again. Those that they had when they were revoked are in the
// lists from then on. Where these do not fit it is an error that says until when.
func (k *Keyring) Restore(ctx context.Context, identities []string) error {
	return k.ask(ctx, func(ctx context.Context) error {
		return k.update(ctx, func(r *record) (*record, []kv.Blob, error) {
			if err := k.count(ctx); err != nil {
				return nil, nil, err
			}
			if err := restore(r, k.census, identities, k.cfg.MaxRevoked, k.cfg.Now()); err != nil {
				return nil, nil, err
			}
			put, err := k.lists(r)
			return r, put, err
		})
	})
}

// lists signs the next list of every issuer that may.
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
