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
	allowancesFolder  = "allowances/"
	allowanceFileName = "allowance.log" // one line for the allowance, and one for each renewal issued from it
)

// allowanceFile stores this replica's allowance on disk, and the renewals issued from it. Both survive a restart.
type allowanceFile struct {
	mu sync.Mutex // guards the fields below; held while the disk is written, and while etcd records a new allowance
	balance
	file   *os.File // open at its end; nil: no renewal can be issued
	issued []Issue  // renewals that are not yet in etcd's journal

	shownLeft atomic.Int64 // last number that the method remaining computed
}

// allowanceHeader is the first line of the file.
type allowanceHeader struct {
	Allowance
	// Made is the creation time of the file. A copy in another replica's directory or from a backup has another
	// creation time, and may lack renewals of the original. Made is zero in files of older versions, and on file
	// systems without creation times.
	Made time.Time `json:"made,omitzero"`
}

var errCopied = errors.New("it is a copy of the file of the allowance, and another replica may renew from the original")

// copied returns errCopied if the header has another creation time than the file. The parameter made is the file's
// creation time. If one of the two times is zero (unknown), copied returns nil.
func (k allowanceHeader) copied(made time.Time) error {
	if k.Made.IsZero() || made.IsZero() || k.Made.Equal(made) {
		return nil
	}
	return fmt.Errorf("%w: original made at %s, copy at %s", errCopied, k.Made.Format(time.RFC3339Nano), made.Format(time.RFC3339Nano))
}

// readAllowance reads the file from dir. A copied or damaged file is renamed, and no more renewals are issued from its
// allowance. The renewals that it could read from the file still go to the journal in etcd.
func readAllowance(dir string, log *slog.Logger) *allowanceFile {
	s := &allowanceFile{balance: newBalance(Allowance{})}
	if dir == "" {
		return s
	}
	path := filepath.Join(dir, allowanceFileName)
	raw, err := durable.Read(path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1] // a renewal whose line lacks its newline was never handed out
	var recorded allowanceHeader
	if err == nil {
		recorded, err = s.readLines(whole)
	}
	if err == nil {
		s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err == nil {
		if err = recorded.copied(durable.Made(s.file)); err != nil {
			s.balance = newBalance(Allowance{}) // etcd's allowance with the same name belongs to the other replica
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
	log.Error("the allowance on disk is refused: renewals that were issued from it while etcd was away may be missing in the journal;"+
		" revoke these by identity, not by serial number",
		slog.String("path", path), slog.Any(obs.KeyError, err), slog.String("aside", aside), slog.Int("renewals", len(s.issued)))
	if err := os.Rename(path, aside); err != nil {
		log.Warn("the refused allowance cannot be set aside", slog.String("path", path), slog.Any(obs.KeyError, err))
	}
	return s
}

// readLines adds the file's lines to s and returns the first line. The error names the first line that does not decode.
// All other lines are used.
func (s *allowanceFile) readLines(whole []byte) (recorded allowanceHeader, bad error) {
	n := 0
	for line := range bytes.Lines(whole) {
		var err error
		if n++; n == 1 {
			err = json.Unmarshal(line, &recorded)
			s.balance = newBalance(recorded.Allowance)
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

// replace writes a new file with the allowance a and no renewals. After an error no renewal can be issued.
func (s *allowanceFile) replace(dir string, a Allowance) error {
	path := filepath.Join(dir, allowanceFileName)
	err := durable.Replace(path, 0o600, func(w io.Writer) error {
		first := allowanceHeader{Allowance: a}
		if file, is := w.(*os.File); is {
			first.Made = durable.Made(file)
		}
		return json.NewEncoder(w).Encode(first) // one line
	})
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
	if s.balance = newBalance(Allowance{Replica: a.Replica}); err != nil {
		return err
	}
	if s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
		s.balance = newBalance(a)
	}
	return err
}

// remaining returns the number of renewals that may still be issued. While the file is being written, it returns the
// last number that was computed.
func (s *allowanceFile) remaining(now time.Time) int {
	if s.mu.TryLock() { // otherwise the file is being written, and the last result is good enough
		defer s.mu.Unlock()
		n := s.allowance.Count - s.spent
		if s.file == nil || now.After(s.allowance.Until) {
			n = 0
		}
		s.shownLeft.Store(int64(n))
	}
	return int(s.shownLeft.Load())
}

// Away reports whether the last attempt to read the keyring from etcd failed. It is false before the first attempt.
func (k *Keyring) Away() bool { return k.away.Load() }

// Longest returns the longest remaining lifetime of a certificate that Spend accepts: 4 h.
func (k *Keyring) Longest() time.Duration { return allowanceTTL }

// Spend records a renewal on this replica's disk, for times when etcd does not answer or is full. The renewal is on
// disk when Spend returns nil. Run journals the renewal in etcd later. i.Previous is the serial number of the verified
// certificate that the caller showed, and shownEnds is the end of that certificate.
//
// The error matches ErrAllowance if the allowance does not permit the renewal, or if the allowance's file was closed
// after an earlier failure. It matches ErrRevoked if the identity or the shown certificate is revoked. Any other error
// means that the entry exceeds 1,900 bytes of JSON, or that writing to the disk failed. After a failed write, Spend
// accepts no renewal until Run has recorded the next allowance. After any error the certificate must not be handed out.
// Spend waits while Run records an allowance.
func (k *Keyring) Spend(i Issue, shownEnds time.Time) error {
	i.NotBefore, i.NotAfter = i.NotBefore.UTC().Truncate(time.Second), i.NotAfter.UTC().Truncate(time.Second)
	raw, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("renewal %.60q: %w", i.Serial, err)
	}
	if len(raw) > maxEntry { // json.Marshal writes no line breaks, so an entry is one line
		return fmt.Errorf("renewal %.60q: %d bytes, at most %d", i.Serial, len(raw), maxEntry)
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
	if err != nil { // the content of the file is unknown, so the file is not used again
		_ = s.file.Close()
		s.file = nil
		return fmt.Errorf("renewal %s: %w", i.Serial, err)
	}
	s.issued = append(s.issued, i)
	return nil
}

// renewAllowance journals the renewals that were issued without etcd, and records a new allowance in etcd and on disk.
// Run calls it after reading etcd, and only while the clock is trusted, because an allowance contains times.
func (k *Keyring) renewAllowance(ctx context.Context) error {
	s := k.allowances
	if k.cfg.Allowance == 0 || k.cfg.Dir == "" || k.ring == nil || k.ring.rec.in(Active) == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := k.handOver(ctx, s); err != nil {
		return fmt.Errorf("renewals that were issued while etcd was away: %w", err)
	}
	if k.ring == nil || k.ring.rec.in(Active) == nil { // handOver may have read the keyring again
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
	if !next.covers(s.allowance) { // the old allowance is given up first, because etcd must have every allowance in use
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
	change := kv.BlobChange{If: map[string]int64{statePath: k.ring.revision}, Put: []kv.Blob{{Path: allowancesFolder + name, Raw: raw}}}
	_, err = k.cfg.Store.ChangeBlobs(asked, change)
	if errors.Is(err, kv.ErrConflict) { // the keyring has changed, and must be read again before the next attempt
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

// handOver journals the renewals that were issued without etcd. If the renewed certificate was revoked meanwhile, the
// renewal is journalled and then revoked. Journalling a renewal twice is harmless.
func (k *Keyring) handOver(ctx context.Context, s *allowanceFile) error {
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
			k.quota.add(i, len(raw), k.cfg.Now())
		}
		asked, cancel := context.WithTimeout(ctx, commitBudget)
		path := journalPath(batch, fmt.Sprintf("away-%s-%s", some[0].Serial, s.allowance.Replica))
		_, err := k.cfg.Store.ChangeBlobs(asked, kv.BlobChange{Put: []kv.Blob{{Path: path, Raw: join(batch)}}})
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
			k.log.Error("renewals of revoked certificates, issued while etcd was away, could not be revoked:"+
				" revoke their identities",
				slog.Any("serials", revoked), slog.Any(obs.KeyError, err))
		}
	}
	k.log.Info("renewals that were issued while etcd was away are journalled", slog.Int("renewals", n))
	s.issued = nil
	return nil
}

// readAllowances reads the allowances of all replicas from etcd. Errors: those of the store, or an allowance does not
// decode.
func (k *Keyring) readAllowances(ctx context.Context) (all []Allowance, err error) {
	asked, cancel := context.WithTimeout(ctx, k.cfg.Answer)
	defer cancel()
	blobs, _, err := k.cfg.Store.Blobs(asked, allowancesFolder, 0)
	if errors.Is(err, kv.ErrForbidden) { // etcd's roles were made for an older version, which records no allowances
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

// pruneAllowances deletes the allowances that have ended.
func (k *Keyring) pruneAllowances(ctx context.Context, now time.Time) error {
	all, err := k.readAllowances(ctx)
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
