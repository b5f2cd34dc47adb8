package keyring

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

const (
	allowancesFolder = "allowances/"
	allowanceFile    = "allowance.log" // a line for the allowance, and one for each renewal that was issued from it
)

// spender keeps this replica's allowance and what was issued from it, on disk: what is handed out is never forgotten, whoever restarts.
type spender struct {
	mu sync.Mutex // guards what follows; held while the disk is written, and while etcd is told of a new allowance
	purse
	file   *os.File // open at its end; nil: nothing can be issued
	issued []Issue  // that etcd does not have

	shownLeft atomic.Int64 // what left said last
}

// kept is the first line of the file.
type kept struct {
	Allowance
	// Made is when the file was made, so that a copy of it is told apart, in another replica's directory or out of a backup: what was issued from the one is not in the other. Zero: that is not
	// known, of files of older versions and where the file system does not say it.
	Made time.Time `json:"made,omitzero"`
}

var errCopied = errors.New("it is a copy of the file that the allowance was recorded in, from which another replica may renew")

// copied says that an allowance was recorded in another file than it is in; nil: not as far as is known.
func (k kept) copied(made time.Time) error {
	if k.Made.IsZero() || made.IsZero() || k.Made.Equal(made) {
		return nil
	}
	return fmt.Errorf("%w: that was made at %s, this at %s", errCopied, k.Made.Format(time.RFC3339Nano), made.Format(time.RFC3339Nano))
}

// recallAllowance reads the file. One that cannot be read as a whole, or is a copy, is set aside, so that the replica starts: nothing is issued from it any more, and of what was, the lines that can
// be read are handed to etcd.
func recallAllowance(dir string, log *slog.Logger) *spender {
	s := &spender{purse: newPurse(Allowance{})}
	if dir == "" {
		return s
	}
	path := filepath.Join(dir, allowanceFile)
	raw, err := durable.Read(path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1] // a last line that was not written as a whole was not handed out
	var recorded kept
	if err == nil {
		recorded, err = s.recall(whole)
	}
	if err == nil {
		s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err == nil {
		if err = recorded.copied(durable.Made(s.file)); err != nil {
			s.purse = newPurse(Allowance{}) // in etcd that one, by its name, stands for the other replica
		}
	}
	if err == nil {
		err = s.file.Truncate(int64(len(whole)))
	}
	if err == nil {
		return s
	}
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
	aside := path + ".refused"
	log.Error("the allowance of renewals on disk is not used: what was issued from it while etcd was away may be missing in the journal, and cannot be revoked by serial number then, only by identity",
		slog.String("path", path), slog.Any(obs.KeyError, err), slog.String("aside", aside), slog.Int("renewals", len(s.issued)))
	if err := os.Rename(path, aside); err != nil {
		log.Warn("it cannot be set aside", slog.String("path", path), slog.Any(obs.KeyError, err))
	}
	return s
}

// recall takes in the lines of the file, and gives the first. The error names the first that cannot be read; the others count.
func (s *spender) recall(whole []byte) (recorded kept, bad error) {
	n := 0
	for line := range bytes.Lines(whole) {
		var err error
		if n++; n == 1 {
			err = json.Unmarshal(line, &recorded)
			s.purse = newPurse(recorded.Allowance)
		} else {
			var i Issue
			if err = json.Unmarshal(line, &i); err == nil {
				s.issued = append(s.issued, i)
				s.spend(i)
			}
		}
		if err != nil && bad == nil {
			bad = fmt.Errorf("line %d: %w", n, err)
		}
	}
	return recorded, bad
}

// replace puts an allowance in the place of the one that was, with nothing issued from it.
func (s *spender) replace(dir string, a Allowance) error {
	path := filepath.Join(dir, allowanceFile)
	err := durable.Replace(path, 0o600, func(w io.Writer) error {
		first := kept{Allowance: a}
		if file, is := w.(*os.File); is {
			first.Made = durable.Made(file)
		}
		return json.NewEncoder(w).Encode(first) // one line
	})
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
	if s.purse = newPurse(Allowance{Replica: a.Replica}); err != nil {
		return err
	}
	if s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
		s.purse = newPurse(a)
	}
	return err
}

// left is how many renewals may be issued yet.
func (s *spender) left(now time.Time) int {
	if s.mu.TryLock() { // else it is being written, and stands again in a moment
		defer s.mu.Unlock()
		n := s.allowance.Count - s.spent
		if s.file == nil || now.After(s.allowance.Until) {
			n = 0
		}
		s.shownLeft.Store(int64(n))
	}
	return int(s.shownLeft.Load())
}

// Away says whether etcd did not answer when it was asked last.
func (k *Keyring) Away() bool { return k.away.Load() }

// Longest is for how long a certificate may live that Spend takes.
func (k *Keyring) Longest() time.Duration { return allowanceTTL }

// Spend makes a renewal durable on this replica's disk before it returns, for as long as etcd does not answer or is full; the loop hands
// it to etcd later. i.Previous is the serial number of the certificate that was shown, and verified, and shownEnds its end.
// ErrAllowance: it is not covered by what etcd was told before; ErrRevoked; after any other error it must not be handed out either.
func (k *Keyring) Spend(i Issue, shownEnds time.Time) error {
	i.NotBefore, i.NotAfter = i.NotBefore.UTC().Truncate(time.Second), i.NotAfter.UTC().Truncate(time.Second)
	raw, err := json.Marshal(i)
	if err != nil || len(raw) > maxEntry || bytes.IndexByte(raw, '\n') >= 0 {
		return fmt.Errorf("renewal %.60q: %d bytes, at most %d: %w", i.Serial, len(raw), maxEntry, err)
	}
	s := k.allowances
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuses(i, shownEnds, k.State(), k.cfg.Now()); err != nil {
		return fmt.Errorf("renewal %s: %w", i.Serial, err)
	}
	if s.file == nil {
		return fmt.Errorf("renewal %s: %w: the allowance cannot be written to", i.Serial, ErrAllowance)
	}
	s.spend(i)
	if _, err = s.file.Write(append(raw, '\n')); err == nil {
		err = s.file.Sync()
	}
	if err != nil { // what is on disk is not known: nothing more is issued from it
		_ = s.file.Close()
		s.file = nil
		return fmt.Errorf("renewal %s: %w", i.Serial, err)
	}
	s.issued = append(s.issued, i)
	return nil
}

// allow hands what was issued without etcd to etcd, and has an allowance recorded for the next time. It is called by the loop, after
// etcd was read, while the clock is not off: by one that is, the allowance's times would be wrong.
func (k *Keyring) allow(ctx context.Context) error {
	s := k.allowances
	if k.cfg.Allowance == 0 || k.cfg.Dir == "" || k.ring == nil || k.ring.rec.in(Active) == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := k.handOver(ctx, s); err != nil {
		return fmt.Errorf("renewals that were issued while etcd was away: %w", err)
	}
	if k.ring == nil || k.ring.rec.in(Active) == nil { // it was read again
		return nil
	}
	now := k.cfg.Now()
	if s.spent == 0 && s.file != nil && !s.allowance.stale(k.ring.rec, now) {
		return nil
	}
	name := s.allowance.Replica
	if name == "" {
		name = rand.Text()
	}
	next := allowance(name, k.ring.rec, k.cfg.Allowance, now)
	if !next.covers(s.allowance) { // first: etcd no longer stands for what is issued from the old one
		if err := s.replace(k.cfg.Dir, Allowance{Replica: name}); err != nil {
			return fmt.Errorf("allowance of renewals: %w", err)
		}
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, k.cfg.Answer)
	defer cancel()
	_, err = k.cfg.Store.ChangeBlobs(asked, kv.BlobChange{If: map[string]int64{statePath: k.ring.revision}, Put: []kv.Blob{{Path: allowancesFolder + name, Raw: raw}}})
	if errors.Is(err, kv.ErrConflict) { // the keyring has changed: it is read again first
		return nil
	}
	if err == nil {
		err = s.replace(k.cfg.Dir, next)
	}
	if err != nil {
		return fmt.Errorf("allowance of renewals: %w", err)
	}
	return nil
}

// handOver journals in etcd what was issued without it. They are facts: what was revoked meanwhile is journalled too, and revoked with
// what was shown for it. It may be done twice.
func (k *Keyring) handOver(ctx context.Context, s *spender) error {
	if len(s.issued) == 0 {
		return nil
	}
	n := 0
	for some := range slices.Chunk(s.issued, maxBatch) {
		var batch []*entry
		for _, i := range some {
			raw, err := json.Marshal(i)
			if err != nil {
				return err
			}
			batch = append(batch, &entry{issue: i, raw: raw})
			k.tally.add(i, len(raw), k.cfg.Now())
		}
		asked, cancel := context.WithTimeout(ctx, commitBudget)
		_, err := k.cfg.Store.ChangeBlobs(asked, kv.BlobChange{Put: []kv.Blob{{Path: journalPath(batch, fmt.Sprintf("away-%s-%s", some[0].Serial, s.allowance.Replica)), Raw: join(batch)}}})
		if cancel(); err != nil {
			return err
		}
		n += len(some)
	}
	var revoked []string
	for _, i := range s.issued {
		if k.State().RevokedSerial(i.Previous) || slices.Contains(revoked, i.Previous) {
			revoked = append(revoked, i.Serial)
		}
	}
	if len(revoked) > 0 {
		if _, err := k.revokeAll(ctx, revoked, nil); err != nil {
			k.log.Error("certificates that were issued while etcd was away, as renewals of certificates since revoked, could not be revoked: revoke their identities",
				slog.Any("serials", revoked), slog.Any(obs.KeyError, err))
		}
	}
	k.log.Info("renewals that were issued while etcd was away are journalled", slog.Int("renewals", n))
	s.issued = nil
	return nil
}

// promised reads the allowances that etcd has.
func (k *Keyring) promised(ctx context.Context) (all []Allowance, err error) {
	asked, cancel := context.WithTimeout(ctx, k.cfg.Answer)
	defer cancel()
	blobs, _, err := k.cfg.Store.Blobs(asked, allowancesFolder, 0)
	if errors.Is(err, kv.ErrForbidden) { // etcd's roles are those of an older version: nobody could record any
		return nil, nil
	}
	for _, blob := range blobs {
		var a Allowance
		if err := json.Unmarshal(blob.Raw, &a); err != nil {
			return nil, fmt.Errorf("allowance %s: %w", blob.Path, err)
		}
		all = append(all, a)
	}
	return all, err
}

// pruneAllowances deletes those of replicas that are gone for good.
func (k *Keyring) pruneAllowances(ctx context.Context, now time.Time) error {
	all, err := k.promised(ctx)
	if err != nil {
		return err
	}
	for _, a := range all {
		if a.ended(now) {
			if _, err := k.cfg.Store.ChangeBlobs(ctx, kv.BlobChange{Delete: []string{allowancesFolder + a.Replica}}); err != nil {
				return err
			}
		}
	}
	return nil
}
