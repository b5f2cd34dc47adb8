package keyring

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
)

// The journal consists of blobs (values in etcd) of up to maxBatch entries. A blob's name begins with the time at which
// the last of its certificates ends, so that one range deletion prunes the journal. Entries that arrive during a
// transaction form the next batch.
const (
	journalFolder = "certificates/"
	maxBatch      = 512
	maxEntry      = 1900 // longest entry, in bytes; a full batch fits in one transaction
	commitBudget  = 10 * time.Second
	pruneEvery    = 15 * time.Minute
	reportKept    = 91 * 24 * time.Hour // longest lifetime of a report (Held); no leaf certificate lives longer
	reportsKnown  = 100_000             // number of journalled reports that this replica remembers, in about 15 MB
)

type entry struct {
	issue  Issue
	raw    []byte
	came   int64 // time of arrival, in Unix ns
	folded *many // the aggregate that replaces the entry; nil if the entry is journalled singly
	done   chan error
}

// Append writes an entry to the journal in etcd, and returns when the entry is durable. It blocks until Run has
// committed the entry, or ctx ends. Concurrent calls are committed in groups. If the quota of Issue.Identity
// (Config.IdentityBytes) or of Issue.Origin is used up, an aggregate (Issue.Many) may replace the entry. A report
// (Issue.Report) beyond the quota is dropped without an error.
//
// The error matches ErrStale if another epoch (signing certificate) signs now, or if the bundle of Issue.Generation
// lacks a published root or is unknown here. The caller must then sign again with the newest State. The error matches
// ErrRevoked if the identity is revoked. Reports do not cause these two errors. If this replica cannot sign, the error
// wraps State.Sealed. An entry without a serial number, with an end before 1970, or of more than 1,900 bytes of JSON is
// refused. After errors of etcd or ctx the entry may or may not be in the journal. After every error the certificate
// must not be handed out.
func (k *Keyring) Append(ctx context.Context, i Issue) error {
	i.NotBefore, i.NotAfter = i.NotBefore.UTC().Truncate(time.Second), i.NotAfter.UTC().Truncate(time.Second)
	raw, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("journal %s: %w", i.Serial, err)
	}
	if i.Serial == "" || i.NotAfter.Unix() < 0 || len(raw) > maxEntry {
		return fmt.Errorf("journal %.60q: no serial, no end, or %d bytes (at most %d)", i.Serial, len(raw), maxEntry)
	}
	e := &entry{issue: i, raw: raw, came: time.Now().UnixNano(), done: make(chan error, 1)}
	select {
	case k.entries <- e:
	case <-ctx.Done():
		return fmt.Errorf("journal %s: %w", i.Serial, ctx.Err())
	}
	select {
	case err = <-e.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("journal %s: %w", i.Serial, err)
	}
	return nil
}

// Held journals a report that the holder of a certificate has the present trust bundle. The argument roots contains the
// SHA-256 digests of the holder's roots (DER), in lower-case hexadecimal. If it lacks a root of the present bundle,
// Held does nothing and returns nil. A report that this replica remembers is not journalled again, so that holders
// cannot fill etcd. The argument origin is the certificate's Issue.Origin. The argument end is the certificate's
// NotAfter. The report expires at that time, but after 91 days at the latest. Held blocks like Append, and returns its
// errors.
func (k *Keyring) Held(ctx context.Context, serial, identity, origin string, roots []string, end time.Time) error {
	s := k.State()
	for _, root := range s.Bundle {
		if !slices.Contains(roots, fingerprint(root)) {
			return nil
		}
	}
	if most := k.cfg.Now().Add(reportKept); end.After(most) {
		end = most
	}
	said := report{serial, s.Generation}
	if again, _ := k.reports.ContainsOrAdd(said, struct{}{}); again {
		return nil
	}
	err := k.Append(ctx, Issue{Serial: serial, Identity: identity, Origin: origin, Generation: s.Generation, NotAfter: end, Report: true})
	if err != nil {
		k.reports.Remove(said)
	}
	return err
}

// report identifies an unverified report: the holder of a certificate claims to have the trust bundle of a generation.
type report struct {
	serial     string
	generation uint64
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// journal commits the entries from Append to etcd, one transaction at a time.
func (k *Keyring) journal(ctx context.Context) error {
	run, count := rand.Text(), 0
	if k.cfg.Leads() {
		var seeding sync.WaitGroup
		seeding.Go(func() { k.seed(ctx) })
		defer seeding.Wait()
	}
	for {
		var batch []*entry
		select {
		case e := <-k.entries:
			batch = append(batch, e)
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more && len(batch) < maxBatch; {
			select {
			case e := <-k.entries:
				batch = append(batch, e)
			default:
				more = false
			}
		}
		count++
		k.oldest.Store(batch[0].came)
		k.commit(ctx, batch, fmt.Sprintf("%s-%08x", run, count))
		k.oldest.Store(0)
	}
}

// commit writes one batch. If the record has changed since this replica read it, the replica reads the record and
// checks the entries again.
func (k *Keyring) commit(ctx context.Context, batch []*entry, name string) {
	ctx, cancel := context.WithTimeout(ctx, commitBudget)
	defer cancel()
	var err error
	batch = k.fold(admit(batch, k.current.Load().state)) // refused entries use up no quota
	for range tries {
		v := k.current.Load()
		if batch = admit(batch, v.state); len(batch) == 0 {
			return
		}
		change := kv.BlobChange{If: map[string]int64{statePath: v.fence}}
		if change.Put, err = blobs(batch, name); err != nil {
			break
		}
		if _, err = k.cfg.Store.ChangeBlobs(ctx, change); !errors.Is(err, kv.ErrConflict) {
			break
		}
		if asked := k.ask(ctx, func(context.Context) error { return nil }); asked != nil { // Run reads the record before it runs a job
			err = asked
			break
		}
	}
	for _, e := range batch {
		e.done <- err
	}
}

// admit returns the entries that may be committed under the State s, and answers the others with an error.
func admit(batch []*entry, s *State) []*entry {
	return slices.DeleteFunc(batch, func(e *entry) bool {
		var err error
		_, refused := s.identities[e.issue.Identity]
		switch {
		case s.Active == nil:
			err = s.Sealed
		case e.issue.Report:
		case e.issue.Epoch != s.Active.Epoch || e.issue.Generation < s.minBundle || e.issue.Generation > s.Generation:
			// While a root is prepared, the journal index assumes that certificates which it has not read yet were
			// delivered with that root.
			err = fmt.Errorf("%w: made by epoch %d with bundle %d, but epoch %d and bundle %d are in force",
				ErrStale, e.issue.Epoch, e.issue.Generation, s.Active.Epoch, s.Generation)
		case refused:
			err = ErrRevoked
		}
		if err != nil {
			e.done <- err
		}
		return err != nil
	})
}

func journalPath(batch []*entry, name string) string {
	var end int64
	for _, e := range batch {
		end = max(end, e.issue.NotAfter.Unix())
	}
	return fmt.Sprintf("%s%012x-%s", journalFolder, end, name)
}

func join(batch []*entry) []byte {
	var b bytes.Buffer
	for i, e := range batch {
		b.WriteByte("[,"[min(i, 1)])
		b.Write(e.raw)
	}
	b.WriteByte(']')
	return b.Bytes()
}

// prune deletes ended allowances, and blobs of the journal in which all certificates have ended. It does nothing if the
// last deletion was less than pruneEvery ago.
func (k *Keyring) prune(ctx context.Context) error {
	now, err := k.cfg.Clock.Sure()
	if err != nil || now.Sub(k.pruned) < pruneEvery {
		return err
	}
	_, err = k.cfg.Store.DropBlobs(ctx, journalFolder, fmt.Sprintf("%s%012x", journalFolder, now.Add(-clockTolerance).Unix()))
	if err == nil {
		err = k.pruneAllowances(ctx, now)
	}
	if err == nil {
		k.pruned = now
	}
	return err
}
