package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
//
// An identity may be the account of thousands of Pods, so each origin (the Pod that a token is bound to, or a token that is bound to none,
// with all certificates that follow from it) has a part of that. What one has beyond its part is journalled as many of the identity's and
// of this origin: the others of the account are journalled one by one, and revoked by serial number, as before.

const (
	identityBytes = 32 << 20 // 75,000 entries or more: 10,000 Pods with certificates for 24 h have 20,000
	parts         = 16       // one origin may have one of so many parts: some 5,000 entries
	coarse        = time.Hour
	maxCoarse     = 64 // blobs of one transaction
	seedPause     = time.Minute
)

// OriginOf is what the journal calls the origin of certificates: a short digest of what tells the credentials of an identity apart; empty
// for nothing.
func OriginOf(credential string) string {
	if credential == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:6])
}

// tally counts by identity, and in each by origin. Safe for concurrent use.
type tally struct {
	most int // bytes of one identity

	mu    sync.Mutex // a leaf
	of    map[string]*account
	sweep int // when so many are kept, those that have nothing go
}

// account is the bytes of one identity, and of each origin of it.
type account struct {
	counted
	origins map[string]*counted
}

// counted is bytes, by the hour in which they end.
type counted struct {
	bytes int
	ends  []ending
}

type ending struct {
	hour  int64
	bytes int
}

func newTally(most int) *tally { return &tally{most: most, of: map[string]*account{}, sweep: 1024} }

// part is as what an entry is journalled.
type part uint8

const (
	alone    part = iota // one by one
	ofOrigin             // as one of many of its origin, which has more than its part
	ofAny                // as one of many of its identity, which has more than its part
)

// add counts an entry, unless its identity or its origin would have more than its part.
func (t *tally) add(i Issue, bytes int, now time.Time) part {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[i.Identity]
	if a == nil {
		if len(t.of) >= t.sweep {
			t.forget(now)
		}
		a = &account{origins: map[string]*counted{}}
		t.of[i.Identity] = a
	}
	if a.bytes+bytes > t.most {
		a.forgetOrigins(now)
	}
	if !a.room(bytes, t.most, now) {
		return ofAny
	}
	if i.Origin != "" {
		o := a.origins[i.Origin]
		if o == nil {
			o = &counted{}
			a.origins[i.Origin] = o
		}
		if !o.room(bytes, t.most/parts, now) {
			return ofOrigin
		}
		o.count(bytes, i.NotAfter)
	}
	a.count(bytes, i.NotAfter)
	return alone
}

// room says whether there is room for an entry, where that matters without what has ended.
func (c *counted) room(bytes, most int, now time.Time) bool {
	if c.bytes+bytes > most {
		c.forget(now)
	}
	return c.bytes+bytes <= most
}

func (c *counted) count(bytes int, end time.Time) {
	hour := end.Unix() / int64(coarse/time.Second)
	c.bytes += bytes
	for i := range c.ends {
		if c.ends[i].hour == hour {
			c.ends[i].bytes += bytes
			return
		}
	}
	c.ends = append(c.ends, ending{hour, bytes})
}

// forget leaves out what has ended and may have been pruned.
func (c *counted) forget(now time.Time) {
	c.ends = slices.DeleteFunc(c.ends, func(e ending) bool {
		gone := now.Sub(time.Unix((e.hour+1)*int64(coarse/time.Second), 0)) > clockTolerance+pruneEvery
		if gone {
			c.bytes -= e.bytes
		}
		return gone
	})
}

func (a *account) forgetOrigins(now time.Time) {
	for name, o := range a.origins {
		if o.forget(now); o.bytes == 0 {
			delete(a.origins, name)
		}
	}
}

func (t *tally) forget(now time.Time) {
	for identity, a := range t.of {
		a.forgetOrigins(now)
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
					k.tally.add(i, len(b.Raw)/len(batch), now)
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
		part := k.tally.add(e.issue, len(e.raw), now)
		if part == alone {
			return false
		}
		if e.issue.Report {
			e.done <- nil
			return true
		}
		m := e.issue.many()
		if part == ofAny || !seen[m] && len(seen) >= maxCoarse {
			m.origin = "" // one blob for all of them
		}
		if seen[m] || len(seen) < maxCoarse {
			seen[m] = true
			e.folded = &m
		}
		return false
	})
}

// many is what coarse entries have in common that replace one another.
type many struct {
	identity, origin  string // no origin: any
	epoch, generation uint64
}

func (i Issue) many() many { return many{i.Identity, i.Origin, i.Epoch, i.Generation} }

// blobs are what a batch is in etcd: one of its entries, and the coarse ones.
func blobs(batch []*entry, name string) (out []kv.Blob, err error) {
	var single []*entry
	last := map[many]time.Time{}
	for _, e := range batch {
		if e.folded == nil {
			single = append(single, e)
		} else if e.issue.NotAfter.After(last[*e.folded]) {
			last[*e.folded] = e.issue.NotAfter
		}
	}
	if len(single) > 0 {
		out = append(out, kv.Blob{Path: journalPath(single, name), Raw: join(single)})
	}
	for m, end := range last {
		end = end.Add(coarse - 1).Truncate(coarse)
		raw, failed := json.Marshal([]Issue{{Identity: m.identity, Origin: m.origin, Epoch: m.epoch, Generation: m.generation, NotAfter: end, Many: true}})
		err = errors.Join(err, failed)
		sum := sha256.Sum256([]byte(m.identity))
		path := fmt.Sprintf("%s%012x-many-%x-%x-%x", journalFolder, end.Unix(), sum[:16], m.epoch, m.generation)
		if m.origin != "" {
			path += "-" + m.origin
		}
		out = append(out, kv.Blob{Path: path, Raw: raw})
	}
	return out, err
}
