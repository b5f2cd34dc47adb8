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

const tries = 8 // attempts at one change; an attempt fails if another transaction changes the record first

// clockOff returns an error while this replica must not change the keyring, because its clock is not trusted.
func (k *Keyring) clockOff() error {
	if err := k.cfg.Clock.Off(); err != nil {
		return fmt.Errorf("the keyring cannot be changed by this replica: %w", err)
	}
	return nil
}

// update changes the record in etcd (the keyring without its keys). Only the goroutine of Keyring.loop calls update.
// The function change gets a copy of the record. It returns the changed record, or nil for no change, and further blobs
// to write. If another write came first, update calls change again, with a copy of the newer record. One transaction
// writes the record and the blobs, and deletes the keys and lists of epochs that the change retires.
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

// advance prepares a new epoch if the active root is near its end. Otherwise it calls the function step, which makes
// the due changes of the epochs' statuses.
func (k *Keyring) advance(ctx context.Context) error {
	return k.update(ctx, func(r *record) (*record, []kv.Blob, error) {
		sure, err := k.cfg.Clock.Sure()
		if err != nil {
			return nil, nil, err
		}
		if ageing(r, k.cfg.Now()) && k.refusesRotation(r) == nil { // the user replaces a CA of his own
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

// readJournal adds new journal entries to the index, and reads the allowances. Callers must read the record first.
func (k *Keyring) readJournal(ctx context.Context) error {
	if k.index == nil {
		k.index = newJournalIndex()
	}
	// Allowances are read before the journal, so that no renewal is missed. A replica journals the renewals from an
	// allowance before it replaces the allowance.
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
		k.log.Info("keyring: publishing a new root", slog.Uint64("epoch", r.Highest))
	}
	return r, put, err
}

// Rotate prepares a new epoch (a signing certificate with its key and root). The root joins the trust bundle at once.
// The epoch signs once the holders of all unexpired leaves have the root. With force, the epoch signs without waiting.
// If an epoch is prepared already, force makes that epoch sign, and Rotate makes no further root.
//
// ErrRotating: an epoch is prepared already, and force is false. If the active epoch or Config.CACerts has the user's
// own CA, Rotate makes no root and returns an error. In such a mesh a rotation starts when the CA's certificate
// changes, and Rotate can only force the prepared epoch. If Config.CACerts must be read and cannot be read, the error
// wraps the error of Config.CACerts.
//
// Rotate, Abort, Revoke and Restore also fail in the following cases. This machine's clock is not trusted, the keyring
// is sealed or refused, or the key encryption key is not available. A key or a revocation list cannot be made. A
// journal entry or an allowance does not decode. Other writers change the record first in eight attempts
// (kv.ErrConflict). etcd fails, or ctx ends. After such an error the change may have been made.
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
			if err := k.refusesRotation(r); err != nil {
				return nil, nil, err
			}
			return k.successor(ctx, r, force)
		})
		if err != nil {
			return err
		}
		return k.advance(ctx)
	})
}

// Abort withdraws the prepared epoch before it has signed. The epoch's roots leave the trust bundle, unless another
// epoch has them too. ErrNoRotation: no epoch is prepared. For the other errors see Rotate.
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

// Report is the keyring's status for operators. Fields without a comment are as in State. Sealed and Alarm are the
// texts of State.Sealed and State.Alarm; empty: no error.
type Report struct {
	Epochs     []Epoch  `json:"epochs"`
	Generation uint64   `json:"generation"`
	Sealed     string   `json:"sealed,omitempty"`
	Alarm      string   `json:"alarm,omitempty"`
	Rotating   uint64   `json:"rotating,omitempty"` // number of the prepared epoch, which waits to sign; 0: none
	Waiting    []Holder `json:"waiting,omitempty"`  // holders without the prepared epoch's root, sorted by Identity
	// Until maps the number of each retiring epoch to the end of the last leaf that it may have issued. The zero time
	// means that the epoch issued no leaf. Until is nil if no epoch is prepared or retiring.
	Until      map[uint64]time.Time `json:"until,omitempty"`
	Serials    int                  `json:"revokedSerials"`              // number of revoked certificates
	Identities []string             `json:"revokedIdentities,omitempty"` // denied identities, sorted
	Denied     []Denial             `json:"denied,omitempty"`            // as State.Denied
	// KEKs names the key encryption keys in use (seal.KEK), sorted, each once. They encrypt the keyring, the private
	// keys and registry credentials of Secrets, the MAC key of ca/vault, and the kubeconfigs of other clusters. After a
	// rotation of the key encryption key, the previous one is listed until all these values are encrypted again. That
	// takes about a minute, and a second more for each 32 Secrets. Empty: unknown, because this replica cannot unseal
	// the keyring.
	KEKs []string `json:"keks,omitempty"`
}

// Status reads the keyring and, while an epoch is prepared or retiring, the journal. If the keyring is sealed or
// refused, the Report states this, without an error; Rotating, Waiting, Until and KEKs are then empty. Errors: etcd
// fails, an entry of the journal or an allowance does not decode, or ctx ends. Callers must not change Report.Epochs.
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
	if err != nil {
		return nil, err // the goroutine of loop may still write to out
	}
	return out, nil
}

// Revoked is the result of a revocation.
type Revoked struct {
	// Serials are the serial numbers that this call added to the revocation lists, sorted as text. They belong to the
	// named certificates and to their renewals. Numbers that were listed before are left out. The numbers are
	// lower-case hexadecimal without leading zeros.
	Serials []string
	// Unknown are the named serial numbers without a certificate in the journal, in the format and order of Serials. If
	// Revoke adds such a number, it stays in the list of every issuer for ever. The lists may lack renewals of its
	// certificate.
	Unknown []string
	Denied  []Denial // one for each named identity in the given order, also if it was denied before
}

// Revoke adds certificates, with their renewals, to revocation lists, and denies identities (State.Denied). Serial
// numbers are hexadecimal, and identities are SPIFFE IDs. Both arguments may be empty. When Revoke returns without an
// error, the lists and denials are in etcd. From then on these identities get no certificates. The exception is a
// replica without etcd: it may still renew certificates from its allowance (Spend).
//
// Revoke first denies the identities, all or none. This step fails if an identity is not a SPIFFE ID, or if more than
// 1,000 identities would be denied. In the second step Revoke lists the certificates, all or none. This step fails if a
// serial number is malformed, an issuer cannot sign lists, or the lists have no room (Config.MaxRevoked). It fails if a
// certificate with its renewals needs more than a tenth of the room. It also fails if renewals may be among aggregated
// certificates (Issue.Many). After a failed second step the identities stay denied, and Denial.Until may be unknown.
// For the other errors see Rotate. With an error the result is nil.
func (k *Keyring) Revoke(ctx context.Context, serials, identities []string) (*Revoked, error) {
	var out *Revoked
	err := k.ask(ctx, func(ctx context.Context) (err error) {
		out, err = k.revokeAll(ctx, serials, identities)
		return err
	})
	if err != nil {
		return nil, err // the goroutine of loop may still write to out
	}
	return out, nil
}

// revokeAll does the work of Revoke. Only the goroutine of Keyring.loop calls it.
func (k *Keyring) revokeAll(ctx context.Context, serials, identities []string) (out *Revoked, err error) {
	// Deny first: afterwards the journal gains no certificates of these identities, so readJournal reads all of them.
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

// Restore ends the denial of identities (SPIFFE IDs), all or none, so that they get certificates again. Their unexpired
// certificates from before the denial are added to the revocation lists. Errors: an identity is not denied, or not all
// of its certificates can be listed. In the second case the error states when the identity can be restored, if that is
// known. For the other errors see Rotate.
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

// lists signs the next revocation list of every unretired issuer that may sign lists.
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
