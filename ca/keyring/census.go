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

// Issue is the journal's entry for one certificate.
type Issue struct {
	Serial     string    `json:"s"` // lower-case hexadecimal
	Identity   string    `json:"i,omitempty"`
	Epoch      uint64    `json:"e,omitempty"` // that signed it
	Generation uint64    `json:"g"`           // of the bundle that went with it
	NotBefore  time.Time `json:"b,omitzero"`
	NotAfter   time.Time `json:"a"`
	By         string    `json:"by,omitempty"`
	Pod        string    `json:"pod,omitempty"`
	Peer       string    `json:"peer,omitempty"`
	// Origin is that of the token which the certificate follows from (OriginOf); empty: it is not known.
	Origin string `json:"o,omitempty"`
	// Previous is the serial of the certificate that this one renews, where it was asked for over mTLS.
	Previous string `json:"prev,omitempty"`
	// Report: no certificate, but a report of the holder of the certificate Serial that it has the trust bundle of Generation.
	Report bool `json:"rep,omitempty"`
	// Many: no certificate, but that Identity has some that are not journalled one by one (tally.go), the last until NotAfter; where there
	// is an Origin, all of that.
	Many bool `json:"many,omitempty"`
}

// Holder is one who holds a leaf that is not expired.
type Holder struct {
	Identity string    `json:"identity"`
	Pod      string    `json:"pod,omitempty"`
	Peer     string    `json:"peer,omitempty"`
	Serial   string    `json:"serial"`
	NotAfter time.Time `json:"notAfter"`
	// Many: it is not one certificate, but those of an identity that has too many to journal one by one; Serial is empty.
	Many bool `json:"many,omitempty"`
}

// census is what the journal says of leaves in use.
type census struct {
	leaves     map[string]Issue     // by serial
	reported   map[string]uint64    // serial -> greatest generation that its holder has
	greatest   map[uint64]time.Time // epoch -> the last end of its leaves
	many       map[many]time.Time   // the last end of what is not journalled one by one
	allowances []Allowance          // that etcd has, whoever has them
	at         int64                // revision up to which the journal was read
}

func newCensus() *census {
	return &census{leaves: map[string]Issue{}, reported: map[string]uint64{}, greatest: map[uint64]time.Time{}, many: map[many]time.Time{}}
}

func (c *census) add(i Issue) {
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

// read adds the entries that values of the journal hold. One that does not decode is an error: the holders of its certificates are unknown.
func (c *census) read(blobs []kv.Blob, at int64) error {
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

// prune forgets leaves that are expired.
func (c *census) prune(now time.Time) {
	for serial, leaf := range c.leaves {
		if now.After(leaf.NotAfter.Add(clockTolerance)) {
			delete(c.leaves, serial)
			delete(c.reported, serial)
		}
	}
	maps.DeleteFunc(c.many, func(_ many, end time.Time) bool { return now.After(end.Add(clockTolerance)) })
}

// crowded says until when there may be certificates that are not journalled one by one among those that followed a leaf; zero: there are
// none. Of the zero leaf, which the journal does not have, nothing is known. whose is the identity.
func (c *census) crowded(leaf Issue, now time.Time) (whose string, until time.Time) {
	for m, end := range c.many {
		mine := leaf.Identity == "" || leaf.Identity == m.identity && (leaf.Origin == "" || m.origin == "" || leaf.Origin == m.origin)
		if mine && !now.After(end.Add(clockTolerance)) && end.After(until) {
			whose, until = m.identity, end
		}
	}
	return whose, until
}

// last is when the last certificate of an epoch ends that there may be.
func (c *census) last(epoch uint64) time.Time {
	end := c.greatest[epoch]
	for _, a := range c.allowances {
		if a.Epoch == epoch && a.Last.After(end) {
			end = a.Last
		}
	}
	return end
}

// unaware is when the last certificate ends that a replica may have issued without etcd and without knowing a version of the record; zero:
// every replica knows it, or has nothing left.
func (c *census) unaware(version uint64, now time.Time) (end time.Time) {
	for _, a := range c.allowances {
		if a.Version < version && !a.ended(now) && a.Last.After(end) {
			end = a.Last
		}
	}
	return end
}

// crowds are the identities that have certificates which are not journalled one by one, with the last end of these, sorted.
func (c *census) crowds(now time.Time) (out []Denial) {
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

// crowd is when the last ends of what an identity has that is not journalled one by one; zero: it has nothing of that.
func (c *census) crowd(identity string, now time.Time) (until time.Time) {
	for _, one := range c.crowds(now) {
		if one.Identity == identity {
			until = one.Until
		}
	}
	return until
}

// missing lists, by identity, who holds an unexpired leaf and does not count as a holder of a bundle of the generation. A
// leaf's holder counts where the leaf was issued with such a bundle or a report says so, or where a later leaf of the
// same pod, or one that renewed this one, counts.
func (c *census) missing(generation uint64, now time.Time) []Holder {
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
