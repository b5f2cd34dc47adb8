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

// The journal in etcd has an entry for each issued certificate. Each identity has a quota of journal bytes, so that no
// identity can fill etcd. Each replica counts the bytes of the unexpired entries that it has added for an identity. A
// replica that leads (Config.Leads) when it starts also counts the entries that are in the journal already.
//
// An identity beyond its quota still gets certificates, since it may have many legitimate workloads. Its further
// certificates are journalled in aggregates. An aggregate is one entry for many certificates. It has no serial numbers,
// only the end of the last of these certificates. An aggregate suffices to deny the identity, and to determine how long
// an epoch (a signing certificate) is in use. Two operations need an entry for each certificate. A rotation waits until
// the aggregated certificates that were delivered without the new root have ended. A revocation by serial number is
// refused if an aggregate may include a renewal of the certificate.
//
// An identity may be the service account of thousands of Pods, so each origin has a quota too, within the quota of its
// identity. An origin is the Pod that a token is bound to, or one unbound token. All certificates that were issued for
// the origin's tokens, and their renewals, belong to the origin. Entries beyond an origin's quota are aggregated for
// that origin. The entries of other origins stay single, and these certificates can be revoked by serial number.

const (
	identityBytes = 32 << 20  // room for 75,000 entries or more; 10,000 Pods need 20,000 (24 h certificates)
	parts         = 16        // an origin's quota is a sixteenth of the identity's quota: some 5,000 entries
	coarse        = time.Hour // ends of aggregates are rounded up to full hours
	maxCoarse     = 64        // maximum number of aggregates in one transaction (fold)
	seedPause     = time.Minute
)

// OriginOf returns a digest of a credential for Issue.Origin: 12 lower-case hexadecimal digits. The digest of an empty
// credential is empty. Callers pass the result of attest.Caller.Credential. That credential is the same for a token,
// for the certificates issued for the token, and for their renewals.
func OriginOf(credential string) string {
	if credential == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:6])
}

// journalQuota counts journal bytes by identity and origin. Safe for concurrent use.
type journalQuota struct {
	most int // quota of one identity, in bytes

	mu         sync.Mutex // a leaf lock: no other lock is taken while it is held
	identities map[string]*account
	sweep      int // at this number of identities, empty accounts are removed before a new one is added
}

// account counts the bytes of one identity, and of each of its origins.
type account struct {
	counted
	origins map[string]*counted
}

// counted counts the bytes of journal entries, by the hour in which their certificates end.
type counted struct {
	bytes int
	ends  []ending
}

type ending struct {
	hour  int64 // since the Unix epoch
	bytes int
}

func newJournalQuota(most int) *journalQuota {
	return &journalQuota{most: most, identities: map[string]*account{}, sweep: 1024}
}

// granularity is the level of detail at which an entry is journalled.
type granularity uint8

const (
	perCertificate granularity = iota // by an entry of its own
	perOrigin                         // aggregated by origin: the origin's quota is used up
	perIdentity                       // aggregated by identity: the identity's quota is used up
)

// add returns the granularity for an entry of the given size. It counts only perCertificate entries against the quotas
// of their identity and origin.
func (t *journalQuota) add(i Issue, bytes int, now time.Time) granularity {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.identities[i.Identity]
	if a == nil {
		if len(t.identities) >= t.sweep {
			t.forget(now)
		}
		a = &account{origins: map[string]*counted{}}
		t.identities[i.Identity] = a
	}
	if a.bytes+bytes > t.most {
		a.forgetOrigins(now)
	}
	if !a.room(bytes, t.most, now) {
		return perIdentity
	}
	if i.Origin != "" {
		o := a.origins[i.Origin]
		if o == nil {
			o = &counted{}
			a.origins[i.Origin] = o
		}
		if !o.room(bytes, t.most/parts, now) {
			return perOrigin
		}
		o.count(bytes, i.NotAfter)
	}
	a.count(bytes, i.NotAfter)
	return perCertificate
}

// room reports whether a further entry fits the quota. If it does not fit at first, room calls forget and compares
// again.
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

// forget stops counting entries whose certificates ended so long ago that prune may have deleted the entries from etcd.
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

func (t *journalQuota) forget(now time.Time) {
	for identity, a := range t.identities {
		a.forgetOrigins(now)
		if a.forget(now); a.bytes == 0 {
			delete(t.identities, identity)
		}
	}
	t.sweep = max(1024, 2*len(t.identities))
}

// seed counts the unexpired single entries of etcd's journal, and then closes k.seeded. It retries after errors until
// ctx ends.
func (k *Keyring) seed(ctx context.Context) {
	counted := map[string]bool{} // paths of blobs: a retry after an error skips them
	for ctx.Err() == nil {
		now := k.cfg.Now()
		err := k.cfg.Store.EachBlob(ctx, journalFolder, func(b kv.Blob) error {
			if counted[b.Path] {
				return nil
			}
			counted[b.Path] = true
			var batch []Issue
			if err := json.Unmarshal(b.Raw, &batch); err != nil || len(batch) == 0 {
				return nil //nolint:nilerr // readers of the journal report entries that do not decode
			}
			for _, i := range batch {
				if !i.Many && !now.After(i.NotAfter) {
					k.quota.add(i, len(b.Raw)/len(batch), now)
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

// fold counts the entries of a batch against the quotas. It lets entries beyond a quota join an aggregate, and sets
// their field folded. A batch has at most maxCoarse aggregates. At this limit an entry can only join an existing
// aggregate of its origin or its whole identity. An entry without such an aggregate stays single. fold acknowledges and
// drops reports (Issue.Report) beyond a quota, since an aggregate does not identify holders. It returns the other
// entries.
func (k *Keyring) fold(batch []*entry) []*entry {
	now := k.cfg.Now()
	seen := map[many]bool{}
	return slices.DeleteFunc(batch, func(e *entry) bool {
		part := k.quota.add(e.issue, len(e.raw), now)
		if part == perCertificate {
			return false
		}
		if e.issue.Report {
			e.done <- nil
			return true
		}
		m := e.issue.many()
		if part == perIdentity || !seen[m] && len(seen) >= maxCoarse {
			m.origin = "" // one blob for the whole identity
		}
		if seen[m] || len(seen) < maxCoarse {
			seen[m] = true
			e.folded = &m
		}
		return false
	})
}

// many is the key of an aggregate. A transaction writes one blob for each key. The blob's path contains the key and the
// end of the last certificate, rounded up to a full hour. A later blob with the same path replaces the earlier one.
type many struct {
	identity, origin  string // an empty origin stands for all origins
	epoch, generation uint64
}

func (i Issue) many() many { return many{i.Identity, i.Origin, i.Epoch, i.Generation} }

// blobs encodes a batch as etcd blobs: one for all single entries, and one for each aggregate.
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
		raw, failed := json.Marshal([]Issue{{Identity: m.identity,
			Origin: m.origin, Epoch: m.epoch, Generation: m.generation, NotAfter: end, Many: true}})
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
