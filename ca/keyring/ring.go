package keyring

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// ring is a verified record (the keyring without keys) with the decrypted keys and the revocation lists (DER), both by
// epoch number.
type ring struct {
	rec      *record
	revision int64
	keys     map[uint64]crypto.Signer
	crls     map[uint64][]byte
}

var errNoRecord = errors.New("there is no " + statePath)

// refresh reads the keyring from etcd and publishes the resulting State. If the record is unchanged, the present State
// stays. If this replica leads and no record is remembered, refresh creates a missing keyring. If etcd does not answer
// and no keyring is in use, refresh uses the keyring on disk. The caller tries again after an error.
func (k *Keyring) refresh(ctx context.Context) error {
	for {
		// peersMemory is copied before etcd is read. Peers remember only records that were in etcd, so the read must
		// return these or newer records.
		k.minimum = *k.peersMemory.Load()
		blobs, err := k.blobs(ctx)
		k.away.Store(err != nil)
		if err != nil {
			if k.ring == nil && k.trouble == nil {
				if failed := k.restore(ctx, err); failed != nil {
					err = errors.Join(err, failed)
				}
			}
			if k.ring == nil && k.trouble == nil {
				k.publish(nil, &State{Sealed: fmt.Errorf("%w: %w", ErrNotLoaded, err)}, 0)
			}
			return err
		}
		found := map[string]kv.Blob{}
		for _, b := range blobs {
			found[b.Path] = b
		}
		state, ok := found[statePath]
		if ok && k.ring != nil && k.trouble == nil && k.ring.revision == state.Revision && !k.behind() {
			return nil
		}
		if !ok && k.mem.Version == 0 && k.minimum.Version == 0 {
			if !k.cfg.Leads() { // this replica may lack the user's CA, and a root made here would have to be rotated away
				err := fmt.Errorf("%w: the record is missing, and this replica does not create it", ErrNotLoaded)
				k.publish(nil, &State{Sealed: err}, 0)
				return err
			}
			if err := k.create(ctx); err != nil && !errors.Is(err, kv.ErrConflict) {
				k.publish(nil, &State{Sealed: err}, 0)
				return err
			}
			continue // read the keyring, which this or another replica created
		}
		return k.applyStored(ctx, state, found)
	}
}

// blobs reads the keyring's blobs from etcd. It waits for Config.Answer at most, since a starting replica can use the
// keyring on disk.
func (k *Keyring) blobs(ctx context.Context) ([]kv.Blob, error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Answer)
	defer cancel()
	blobs, _, err := k.cfg.Store.Blobs(ctx, keysFolder, 0)
	return blobs, err
}

// applyStored verifies the keyring that was read from etcd, and publishes its State. If the keyring is refused
// (function alarming), applyStored publishes a copy of the previous State with an Alarm. The copy has no Active if a
// peer remembers a newer keyring. After any other error the published State is sealed: it cannot sign.
func (k *Keyring) applyStored(ctx context.Context, state kv.Blob, found map[string]kv.Blob) error {
	r, sum, err := k.verify(ctx, state)
	verified := err == nil
	var next *ring
	if err == nil {
		next, err = k.unseal(ctx, r, state.Revision, found)
	}
	var published *State
	if err == nil {
		published, err = next.state()
	}
	if err == nil {
		m := memory{Mesh: k.cfg.Mesh, TrustDomain: k.cfg.TrustDomain.Name(), Epoch: r.Highest, Version: r.Version,
			Digest: hex.EncodeToString(sum), Roots: fingerprints(published.Bundle)}
		k.save(next.rec, found) // before remember: the remembered version is never newer than the file
		if m != k.mem {
			err = m.remember(k.cfg.Dir) // before the keyring is used, so that a used keyring is never forgotten
		}
		if err == nil {
			k.mem = m
			k.seen.Store(&m)
		}
	}
	if err == nil {
		k.noteTrouble(nil)
		k.publish(next, published, state.Revision)
		k.log.Info("keyring is in force", slog.Any("keyring", published), slog.Int64(obs.KeyRevision, state.Revision))
		return nil
	}
	k.noteTrouble(err)
	if !alarming(err) {
		k.publish(nil, k.sealedState(r, verified || r != nil && k.mem.knows(r, sum), err), 0)
		return err
	}
	// The previous keyring stays in force, and nothing overwrites the refused one in etcd.
	old := *k.State()
	old.Alarm = err
	if k.behind() { // the keyring in force is older than a peer's
		old.Active = nil
	}
	if old.Active == nil {
		old.Sealed = err
	}
	k.show(&old, state.Revision)
	return err
}

func alarming(err error) bool {
	return errors.Is(err, ErrRolledBack) || errors.Is(err, seal.ErrTampered) || errors.Is(err, seal.ErrNewer)
}

// noteTrouble records the error of applyStored, which may be nil. It logs a refusal (function alarming), but not the
// same refusal twice in succession. After an error, k.ring is nil.
func (k *Keyring) noteTrouble(err error) {
	if err != nil && alarming(err) && (k.trouble == nil || k.trouble.Error() != err.Error()) {
		k.log.Error("keyring: the keyring in etcd is refused; this replica keeps the previous one, if it has one", slog.Any(obs.KeyError, err))
	}
	k.trouble = err
	if err != nil {
		k.ring = nil
	}
}

func (k *Keyring) publish(r *ring, s *State, fence int64) {
	k.ring = r
	k.show(s, fence)
}

// sealedState builds the State of a replica that cannot decrypt the keyring. Bundle has the roots of the record r if r
// is verified, otherwise those of an earlier verified record. If no record was verified yet, the roots of r are only
// Claimed.
func (k *Keyring) sealedState(r *record, verified bool, err error) *State {
	if verified {
		if s, bad := r.public(); bad == nil {
			s.Sealed = err
			return s
		}
	}
	s := *k.State()
	s.Active, s.Sealed, s.Alarm = nil, err, nil
	if s.Claimed = nil; r != nil && len(s.Bundle) == 0 {
		s.Claimed, s.serials, s.identities = k.believed(r), r.Serials, r.Identities
	}
	return &s
}

// verify decodes the record. It checks that a holder of the key encryption key wrote the record, and that the record is
// not older than the remembered one. If the tag (the encrypted digest) does not open, verify returns the unverified
// record and its digest with the error.
func (k *Keyring) verify(ctx context.Context, state kv.Blob) (*record, []byte, error) {
	if state.Revision == 0 {
		return nil, nil, cmp.Or(k.refuses(nil, nil), errNoRecord)
	}
	r, s, err := parseRecord(state.Raw)
	if errors.Is(err, seal.ErrNewer) {
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", seal.ErrTampered, err)
	}
	sum := digest(s.State)
	if err := k.refuses(r, sum); err != nil {
		return nil, nil, err
	}
	tag, err := k.cfg.Sealer.Open(ctx, s.Tag, k.context(r.Highest, "", purposeState))
	if err != nil {
		return r, sum, err
	}
	if !bytes.Equal(tag, sum) {
		return nil, nil, fmt.Errorf("%s: %w", statePath, seal.ErrTampered)
	}
	return r, sum, nil
}

// unseal decrypts the keys of all unretired epochs, and verifies the revocation lists of these epochs.
func (k *Keyring) unseal(ctx context.Context, r *record, revision int64, found map[string]kv.Blob) (*ring, error) {
	out := &ring{rec: r, revision: revision, keys: map[uint64]crypto.Signer{}, crls: map[uint64][]byte{}}
	for i := range r.Epochs {
		e := &r.Epochs[i]
		if e.Status == Retired {
			continue
		}
		a, err := e.authority(nil)
		if err != nil {
			return nil, err
		}
		plain, err := k.cfg.Sealer.Open(ctx, found[sealedPath(e.Number)].Raw, k.context(e.Number, e.keyID(), purposeKey))
		if err != nil {
			return nil, err
		}
		parsed, err := x509.ParsePKCS8PrivateKey(plain)
		clear(plain)
		key, ok := parsed.(crypto.Signer)
		public, can := a.Certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if err != nil || !ok || !can || !public.Equal(key.Public()) {
			return nil, fmt.Errorf("key of epoch %d is not that of its certificate: %w", e.Number, seal.ErrTampered)
		}
		out.keys[e.Number] = signer{key}
		if e.CRL == 0 {
			continue
		}
		der := found[crlPath(e.Number)].Raw
		list, err := x509.ParseRevocationList(der)
		if err != nil || list.CheckSignatureFrom(a.Certificate) != nil || list.Number.Cmp(new(big.Int).SetUint64(e.CRL)) != 0 {
			return nil, fmt.Errorf("revocation list %d of epoch %d: %w", e.CRL, e.Number, seal.ErrTampered)
		}
		out.crls[e.Number] = der
	}
	return out, nil
}

// state builds the State of a ring.
func (r *ring) state() (*State, error) {
	s, err := r.rec.public()
	if err != nil {
		return nil, err
	}
	complete := true
	for i := range r.rec.Epochs {
		e := &r.rec.Epochs[i]
		if e.Status == Active {
			if s.Active, err = e.authority(r.keys[e.Number]); err != nil {
				return nil, err
			}
		}
		if e.Status != Retired {
			complete = complete && e.CRL > 0
			s.CRLs = append(s.CRLs, CRL{Epoch: e.Number, Number: e.CRL, DER: r.crls[e.Number]})
		}
	}
	if !complete {
		s.CRLs = nil
	}
	if s.Active == nil {
		s.Sealed = errors.New("no epoch is active")
	}
	return s, nil
}

// write replaces the record in etcd. The argument revision is the expected revision of the replaced record; 0: etcd has
// no record yet. The same transaction writes the blobs in put and deletes the paths in drop. kv.ErrConflict: another
// write came first.
func (k *Keyring) write(ctx context.Context, next *record, revision int64, put []kv.Blob, drop []string) error {
	next.Schema, next.Version = schema, next.Version+1
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	tag, err := k.cfg.Sealer.Seal(ctx, digest(raw), k.context(next.Highest, "", purposeState))
	if err != nil {
		return err
	}
	value, err := json.Marshal(stored{State: raw, Tag: tag})
	if err != nil {
		return err
	}
	_, err = k.cfg.Store.ChangeBlobs(ctx, kv.BlobChange{If: map[string]int64{statePath: revision},
		Put: append(put, kv.Blob{Path: statePath, Raw: value}), Delete: drop})
	return err
}

// enrol makes the blobs of the newest epoch. These are its encrypted key and, if its certificate may sign lists, its
// first revocation list. Both must exist before the epoch signs.
func (k *Keyring) enrol(ctx context.Context, r *record, a *issue.Authority) ([]kv.Blob, error) {
	e := r.epoch(r.Highest)
	plain, err := x509.MarshalPKCS8PrivateKey(a.Key)
	if err != nil {
		return nil, fmt.Errorf("key of epoch %d: %w", e.Number, err)
	}
	raw, err := k.cfg.Sealer.Seal(ctx, plain, k.context(e.Number, e.keyID(), purposeKey))
	clear(plain)
	if err != nil {
		return nil, err
	}
	put := []kv.Blob{{Path: sealedPath(e.Number), Raw: raw}}
	list, err := k.list(r, e, a)
	if list != nil {
		put = append(put, *list)
	}
	return put, err
}

// list signs an epoch's next revocation list, and increments e.CRL. It returns nil without an error if the epoch's
// certificate may not sign lists.
func (k *Keyring) list(r *record, e *epoch, a *issue.Authority) (*kv.Blob, error) {
	if !a.CanRevoke() {
		return nil, nil
	}
	var entries []issue.Revoked
	for serial, v := range r.Serials {
		if v.Epoch == 0 || v.Epoch == e.Number {
			entries = append(entries, issue.Revoked{Serial: serial, At: v.At})
		}
	}
	e.CRL++
	der, err := issue.CRL(a, new(big.Int).SetUint64(e.CRL), entries, k.cfg.Now(), nil)
	if err != nil {
		return nil, err
	}
	return &kv.Blob{Path: crlPath(e.Number), Raw: der}, nil
}

// create writes the first record of a mesh. kv.ErrConflict: another replica wrote it first.
func (k *Keyring) create(ctx context.Context) error {
	r := &record{}
	a, origin, err := k.first()
	if err != nil {
		return err
	}
	r.add(a, origin, k.cfg.Now())
	put, err := k.enrol(ctx, r, a)
	if err != nil {
		return err
	}
	return k.write(ctx, r, 0, put, nil)
}
