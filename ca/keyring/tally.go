package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
)

// No identity fills etcd (issue 12, item 10). Each replica counts the bytes of an identity's entries that have not ended: of all that
// the journal had when it started, and of those that it wrote since. An identity that has more than its part is refused nothing, for
// its workloads may be many, and good. What is journalled of it from then on is that it has certificates, and until when: one blob for
// each hour in which the last of them ends, instead of one entry for each certificate. That is enough to deny the identity, and to
// know how long an epoch is in use. It is not enough to follow one certificate: a rotation waits for all that were issued so, and
// revoking by serial number is refused where it may be one of them.

const (
	identityBytes = 32 << 20 // 80,000 entries or more: 10,000 Pods with certificates for 24 h have 20,000
	coarse        = time.Hour
	maxCoarse     = 64 // blobs of one transaction
	seedPause     = time.Minute
)

// tally counts by identity. Safe for concurrent use.
type tally struct {
	most int // bytes of one identity

	mu    sync.Mutex // a leaf
	of    map[string]*account
	sweep int // when so many are kept, those that have nothing go
}

// account is the bytes of one identity, by the hour in which they end.
type account struct {
	bytes int
	ends  map[int64]int
}

func newTally(most int) *tally { return &tally{most: most, of: map[string]*account{}, sweep: 1024} }

// add counts an entry; false: its identity would have more than its part, so it is not counted.
func (t *tally) add(identity string, bytes int, end, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[identity]
	if a == nil {
		if len(t.of) >= t.sweep {
			t.forget(now)
		}
		a = &account{ends: map[int64]int{}}
		t.of[identity] = a
	}
	if a.bytes+bytes > t.most {
		if a.forget(now); a.bytes+bytes > t.most {
			return false
		}
	}
	a.bytes += bytes
	a.ends[end.Unix()/int64(coarse/time.Second)] += bytes
	return true
}

// forget leaves out what has ended and may have been pruned.
func (a *account) forget(now time.Time) {
	for hour, bytes := range a.ends {
		if now.Sub(time.Unix((hour+1)*int64(coarse/time.Second), 0)) > clockTolerance+pruneEvery {
			a.bytes -= bytes
			delete(a.ends, hour)
		}
	}
}

func (t *tally) forget(now time.Time) {
	for identity, a := range t.of {
		if a.forget(now); a.bytes == 0 {
			delete(t.of, identity)
		}
	}
	t.sweep = max(1024, 2*len(t.of))
}

// seed counts what the journal has, once, until it could be read or ctx ends.
func (k *Keyring) seed(ctx context.Context) {
	for ctx.Err() == nil {
		now := k.cfg.Now()
		err := k.cfg.Store.EachBlob(ctx, journalFolder, func(b kv.Blob) error {
			var batch []Issue
			if err := json.Unmarshal(b.Raw, &batch); err != nil || len(batch) == 0 {
				return nil //nolint:nilerr // the census says so where it matters
			}
			for _, i := range batch {
				if !i.Many && !now.After(i.NotAfter) {
					k.tally.add(i.Identity, len(b.Raw)/len(batch), i.NotAfter, now)
				}
			}
			return nil
		})
		if err == nil {
			close(k.seeded)
			return
		}
		select {
		case <-time.After(seedPause):
		case <-ctx.Done():
		}
	}
}

// fold marks the entries that are not journalled one by one, and answers the reports among them: of certificates that are not, nothing
// is known that a report would add to.
func (k *Keyring) fold(batch []*entry) []*entry {
	now := k.cfg.Now()
	seen := map[many]bool{}
	return slices.DeleteFunc(batch, func(e *entry) bool {
		if len(seen) < maxCoarse && !k.tally.add(e.issue.Identity, len(e.raw), e.issue.NotAfter, now) {
			if e.issue.Report {
				e.done <- nil
				return true
			}
			seen[e.issue.many()] = true
			e.folded = true
		}
		return false
	})
}

// many is what coarse entries have in common that replace one another.
type many struct {
	identity          string
	epoch, generation uint64
}

func (i Issue) many() many { return many{i.Identity, i.Epoch, i.Generation} }

// blobs are what a batch is in etcd: one of its entries, and the coarse ones.
func blobs(batch []*entry, name string) (out []kv.Blob, err error) {
	var single []*entry
	last := map[many]time.Time{}
	for _, e := range batch {
		if m := e.issue.many(); !e.folded {
			single = append(single, e)
		} else if e.issue.NotAfter.After(last[m]) {
			last[m] = e.issue.NotAfter
		}
	}
	if len(single) > 0 {
		out = append(out, kv.Blob{Path: journalPath(single, name), Raw: join(single)})
	}
	for m, end := range last {
		end = end.Add(coarse - 1).Truncate(coarse)
		raw, failed := json.Marshal([]Issue{{Identity: m.identity, Epoch: m.epoch, Generation: m.generation, NotAfter: end, Many: true}})
		err = errors.Join(err, failed)
		sum := sha256.Sum256([]byte(m.identity))
		out = append(out, kv.Blob{Path: fmt.Sprintf("%s%012x-many-%x-%x-%x", journalFolder, end.Unix(), sum[:16], m.epoch, m.generation), Raw: raw})
	}
	return out, err
}
