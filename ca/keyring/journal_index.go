package keyring

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/kv"
)

// Issue is one entry of the journal. It is for a certificate, or it is a report (Report) or an aggregate (Many).
type Issue struct {
	Serial     string    `json:"s"`              // serial number of the certificate, lower-case hexadecimal; empty in an aggregate
	Identity   string    `json:"i,omitempty"`    // SPIFFE ID in the certificate
	Epoch      uint64    `json:"e,omitempty"`    // the epoch that signed the certificate; 0 in a report
	Generation uint64    `json:"g"`              // generation of the trust bundle delivered with the certificate
	NotBefore  time.Time `json:"b,omitzero"`     // start of the certificate; in whole seconds, UTC, like NotAfter
	NotAfter   time.Time `json:"a"`              // end of the certificate; in a report: when the report expires
	By         string    `json:"by,omitempty"`   // kind of the credential, as attest.Caller.By
	Pod        string    `json:"pod,omitempty"`  // name of the caller's Pod; empty: unknown
	Peer       string    `json:"peer,omitempty"` // network address of the caller
	// Origin identifies the token from which the certificate and its predecessors were obtained (OriginOf). Empty:
	// unknown.
	Origin string `json:"o,omitempty"`
	// Previous is the serial number of the certificate that this one renewed over mTLS. Empty: the caller showed a
	// token.
	Previous string `json:"prev,omitempty"`
	// Report marks a report: the holder of the certificate with this Serial has the trust bundle of this Generation.
	Report bool `json:"rep,omitempty"`
	// Many marks an aggregate entry for certificates of Identity that are not journalled one by one (journal_quota.go).
	// If Origin is set, all of them have this Origin. NotAfter is the end of the last of these certificates, rounded up
	// to a full hour.
	Many bool `json:"many,omitempty"`
}

// Holder is a workload with an unexpired leaf certificate that may lack a root of the trust bundle. If Many is set, one
// Holder stands for several certificates of an identity, or for all certificates that a replica may have renewed
// without etcd. In the second case, Identity is a text that names the replica.
type Holder struct {
	Identity string    `json:"identity"`       // SPIFFE ID of the workload
	Pod      string    `json:"pod,omitempty"`  // name of its Pod; empty: unknown
	Peer     string    `json:"peer,omitempty"` // network address from which it requested the certificate
	Serial   string    `json:"serial"`         // serial number of the certificate, lower-case hexadecimal
	NotAfter time.Time `json:"notAfter"`       // end of the certificate
	// Many marks a Holder that stands for an aggregate entry (Issue.Many) or for an Allowance. NotAfter is the end of
	// the last certificate, or later. Pod, Peer and Serial are empty.
	Many bool `json:"many,omitempty"`
}

// journalIndex indexes the journal's entries about unexpired leaf certificates.
type journalIndex struct {
	leaves     map[string]Issue     // by serial number
	reported   map[string]uint64    // serial number -> greatest bundle generation that its holder reported
	greatest   map[uint64]time.Time // epoch -> end of its last leaf
	many       map[many]time.Time   // aggregate entries -> end of the last certificate
	allowances []Allowance          // allowances of all replicas, as stored in etcd
	at         int64                // etcd revision at which the journal was last read
}

func newJournalIndex() *journalIndex {
	return &journalIndex{leaves: map[string]Issue{}, reported: map[string]uint64{},
		greatest: map[uint64]time.Time{}, many: map[many]time.Time{}}
}

func (c *journalIndex) add(i Issue) {
	if i.Report {
		c.reported[i.Serial] = max(c.reported[i.Serial], i.Generation)
		return
	}
	if i.Many {
		if i.NotAfter.After(c.many[i.many()]) {
			c.many[i.many()] = i.NotAfter
		}
	} else {
		c.leaves[i.Serial] = i
	}
	if i.NotAfter.After(c.greatest[i.Epoch]) {
		c.greatest[i.Epoch] = i.NotAfter
	}
}

// read adds the journal entries in the given blobs. After an error, the index lacks the entries of the blob that does
// not decode and of the blobs after it.
func (c *journalIndex) read(blobs []kv.Blob, at int64) error {
	for _, blob := range blobs {
		var batch []Issue
		if err := json.Unmarshal(blob.Raw, &batch); err != nil {
			return fmt.Errorf("journal entry %s: %w", blob.Path, err)
		}
		for _, i := range batch {
			c.add(i)
		}
	}
	c.at = at
	return nil
}

// prune removes leaves and aggregates that ended more than clockTolerance ago. It also removes the reports about these
// leaves.
func (c *journalIndex) prune(now time.Time) {
	for serial, leaf := range c.leaves {
		if now.After(leaf.NotAfter.Add(clockTolerance)) {
			delete(c.leaves, serial)
			delete(c.reported, serial)
		}
	}
	maps.DeleteFunc(c.many, func(_ many, end time.Time) bool { return now.After(end.Add(clockTolerance)) })
}

// aggregatedRenewals finds the aggregates that may include a renewal of a leaf. It returns the identity and the end of
// the aggregate that ends last. The results are zero if every renewal of the leaf has an entry of its own. If the
// journal lacks the leaf, pass the zero Issue, which matches every aggregate.
func (c *journalIndex) aggregatedRenewals(leaf Issue, now time.Time) (whose string, until time.Time) {
	for m, end := range c.many {
		mine := leaf.Identity == "" || leaf.Identity == m.identity && (leaf.Origin == "" || m.origin == "" || leaf.Origin == m.origin)
		if mine && !now.After(end.Add(clockTolerance)) && end.After(until) {
			whose, until = m.identity, end
		}
	}
	return whose, until
}

// lastEnd returns the end of the last certificate that an epoch issued, or may issue by an allowance. The result is
// zero if there is no such certificate.
func (c *journalIndex) lastEnd(epoch uint64) time.Time {
	end := c.greatest[epoch]
	for _, a := range c.allowances {
		if a.Epoch == epoch && a.Last.After(end) {
			end = a.Last
		}
	}
	return end
}

// unawareUntil looks for unexpired allowances that were recorded under an older version of the keyring's record. It
// returns the latest end of a certificate that they permit. It returns zero if there are no such allowances.
func (c *journalIndex) unawareUntil(version uint64, now time.Time) (end time.Time) {
	for _, a := range c.allowances {
		if a.Version < version && !a.ended(now) && a.Last.After(end) {
			end = a.Last
		}
	}
	return end
}

// aggregated lists the identities with unexpired aggregate entries, sorted. Denial.Until is the end of the identity's
// last aggregated certificate.
func (c *journalIndex) aggregated(now time.Time) (out []Denial) {
	last := map[string]time.Time{}
	for m, end := range c.many {
		if !now.After(end.Add(clockTolerance)) && end.After(last[m.identity]) {
			last[m.identity] = end
		}
	}
	for _, identity := range slices.Sorted(maps.Keys(last)) {
		out = append(out, Denial{Identity: identity, Until: last[identity]})
	}
	return out
}

// aggregatedUntil returns the end of an identity's last unexpired aggregate entry, or zero if it has no such entry.
func (c *journalIndex) aggregatedUntil(identity string, now time.Time) (until time.Time) {
	for _, one := range c.aggregated(now) {
		if one.Identity == identity {
			until = one.Until
		}
	}
	return until
}

// missing lists the holders without the trust bundle of a generation, sorted by identity, and then by the concatenation
// of Pod and serial number. Only holders of unexpired leaves count. A leaf has the bundle if it was issued with this or
// a later bundle, or if its holder reported the bundle. A holder is not listed if its leaf, a renewal of its leaf, or
// another leaf of the same identity and Pod has the bundle. Unexpired aggregates and allowances of older generations
// are listed too, with Holder.Many set.
func (c *journalIndex) missing(generation uint64, now time.Time) []Holder {
	type place struct{ identity, pod string }
	pods, counts := map[place]bool{}, map[string]bool{}
	for serial, leaf := range c.leaves {
		if leaf.Generation < generation && c.reported[serial] < generation {
			continue
		}
		if leaf.Pod != "" {
			pods[place{leaf.Identity, leaf.Pod}] = true
		}
		for at := serial; at != "" && !counts[at]; at = c.leaves[at].Previous {
			counts[at] = true
		}
	}
	var out []Holder
	for serial, leaf := range c.leaves {
		if counts[serial] || pods[place{leaf.Identity, leaf.Pod}] || now.After(leaf.NotAfter) {
			continue
		}
		out = append(out, Holder{Identity: leaf.Identity, Pod: leaf.Pod, Peer: leaf.Peer, Serial: serial, NotAfter: leaf.NotAfter})
	}
	for m, end := range c.many {
		if m.generation < generation && !now.After(end) {
			out = append(out, Holder{Identity: m.identity, NotAfter: end, Many: true})
		}
	}
	for _, a := range c.allowances {
		if a.Generation < generation && !now.After(a.Last) {
			out = append(out, Holder{Identity: "renewed by replica " + a.Replica + " without etcd", NotAfter: a.Last, Many: true})
		}
	}
	slices.SortFunc(out, func(a, b Holder) int {
		if by := strings.Compare(a.Identity, b.Identity); by != 0 {
			return by
		}
		return strings.Compare(a.Pod+a.Serial, b.Pod+b.Serial)
	})
	return out
}
