package keyring

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/store/kv"
)

// An identity is revoked by a denial: it gets no certificate any more, and whoever asks State.Denied keeps out what it has
// already. That needs no list, so a workload that had thousands of certificates issued keeps none, and takes the room in the
// lists from nobody. A certificate is revoked by its serial number, with all that were issued by showing it: a list has room
// for some (Config.MaxRevoked), and revoking more by one number is refused.

// Denial is an identity that is revoked.
type Denial struct {
	Identity string `json:"identity"`
	// Until is when the last certificate ends that it had when it was revoked; zero: not known. Nobody needs to be kept out
	// afterwards, but the identity still gets no certificate.
	Until  time.Time `json:"until,omitzero"`
	Leaves int       `json:"leaves,omitempty"` // certificates that it had, of those journalled one by one; in the answer of Revoke only
}

// deny keeps identities from getting certificates; nil where none of them is new.
func deny(r *record, identities []string, now time.Time) (*record, []kv.Blob, error) {
	changed := false
	for _, text := range identities {
		id, err := spiffeid.FromString(text)
		if err != nil {
			return nil, nil, fmt.Errorf("identity %q: %w", text, err)
		}
		if _, ok := r.Identities[id.String()]; ok {
			continue
		}
		if r.Identities == nil {
			r.Identities = map[string]revoked{}
		}
		r.Identities[id.String()], changed = revoked{At: now, Version: r.Version + 1}, true
	}
	if len(r.Identities) > maxDenied {
		return nil, nil, fmt.Errorf("%d revoked identities, at most %d fit", len(r.Identities), maxDenied)
	}
	if !changed {
		return nil, nil, nil
	}
	return r, nil, nil
}

// bound says of denied identities until when they have certificates: nothing new is issued for them, and the census has all.
func bound(r *record, c *census, identities []string, now time.Time) (out []Denial) {
	for _, text := range identities {
		d := Denial{Identity: spiffeid.RequireFromString(text).String(), Until: now.UTC().Truncate(time.Second)}
		for _, leaf := range of(c, d.Identity, now) {
			d.Leaves++
			if leaf.NotAfter.After(d.Until) {
				d.Until = leaf.NotAfter
			}
		}
		if end := c.crowd(d.Identity, now); end.After(d.Until) {
			d.Until = end
		}
		v := r.Identities[d.Identity]
		if end := c.unaware(v.Version, now); end.After(d.Until) {
			d.Until = end
		}
		v.Until = d.Until
		r.Identities[d.Identity] = v
		out = append(out, d)
	}
	return out
}

// revoke adds certificates to the record, with those that renewed them: all of them, or there is an error that says what does
// not fit.
func revoke(r *record, c *census, serials []string, most int, now time.Time) (*Revoked, error) {
	r.forget(now)
	out := &Revoked{}
	if e := r.unlisted(); e != nil && len(serials) > 0 {
		return nil, fmt.Errorf("the issuer of epoch %d cannot sign revocation lists (key usage cRLSign), without which no proxy has any: revoke the identity", e.Number)
	}
	for _, text := range serials {
		n, ok := new(big.Int).SetString(text, 16)
		if !ok || n.Sign() <= 0 || n.BitLen() > 159 {
			return nil, fmt.Errorf("serial %.60q: want a positive hexadecimal number of at most 20 bytes", text)
		}
		serial := n.Text(16)
		leaf, known := c.leaves[serial]
		if !known {
			out.Unknown = append(out.Unknown, serial)
		}
		if err := followed(c, serial, leaf, now); err != nil {
			return nil, err
		}
		renewals := c.renewalsOf(serial, now)
		if n := len(renewals) + 1; n > share(most) {
			return nil, fmt.Errorf("serial %s: %d certificates were issued to who showed it, and one revocation takes %d of the %d places in the lists at most: revoke the identity %s instead",
				serial, n-1, share(most), most, renewals[0].Identity)
		}
		for _, one := range append(renewals, Issue{Serial: serial, Epoch: leaf.Epoch, NotAfter: leaf.NotAfter}) {
			if r.list(one, now) {
				out.Serials = append(out.Serials, one.Serial)
			}
		}
		if len(r.Serials) > most && len(out.Serials) > 0 {
			why := fmt.Sprintf("%d revoked certificates, at most %d fit", len(r.Serials), most)
			if len(renewals) > 0 {
				why += fmt.Sprintf("; %d were issued to who showed %s: revoke the identity %s instead", len(renewals), serial, renewals[0].Identity)
			}
			return nil, fmt.Errorf("serial %s: %s", serial, why)
		}
	}
	slices.Sort(out.Serials)
	slices.Sort(out.Unknown)
	return out, nil
}

// share is how many places in the lists one revocation or restoration takes, so that nobody's renewals fill them for others: a tenth.
func share(most int) int { return max(1, most/10) }

// followed says why a certificate cannot be revoked by its serial number: what renewed it may be among what is not journalled one by one.
// leaf is the zero one where the journal does not have it.
func followed(c *census, serial string, leaf Issue, now time.Time) error {
	if whose, until := c.crowded(leaf, now); !until.IsZero() {
		return fmt.Errorf("serial %s: %s has more certificates than are journalled one by one, the last until %s, and what renewed this one may be among them: revoke the identity instead",
			serial, whose, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// list adds a certificate to the record; false: it is there already.
func (r *record) list(leaf Issue, now time.Time) bool {
	if _, ok := r.Serials[leaf.Serial]; ok {
		return false
	}
	if r.Serials == nil {
		r.Serials = map[string]revoked{}
	}
	r.Serials[leaf.Serial] = revoked{At: now.UTC().Truncate(time.Second), Epoch: leaf.Epoch, Until: leaf.NotAfter}
	return true
}

// restore takes denials back. What an identity had when it was revoked goes into the lists first, since somebody else may hold
// it: where that does not fit, or an issuer cannot sign lists, it is an error that says when nothing of it is left.
func restore(r *record, c *census, identities []string, most int, now time.Time) error {
	r.forget(now)
	for _, id := range identities {
		if _, ok := r.Identities[id]; !ok {
			return fmt.Errorf("identity %s is not revoked", id)
		}
		if end := c.crowd(id, now); !end.IsZero() {
			return fmt.Errorf("identity %s has more certificates from before it was revoked than are journalled one by one: restore it after %s, when they have ended",
				id, end.UTC().Format(time.RFC3339))
		}
		if end := c.unaware(r.Identities[id].Version, now); !end.IsZero() {
			return fmt.Errorf("identity %s may have certificates from before it was revoked of a replica that has not been heard of since: restore it when that is back, or after %s",
				id, end.UTC().Format(time.RFC3339))
		}
		had := of(c, id, now)
		if len(had) > share(most) {
			return fmt.Errorf("identity %s has %d certificates from before it was revoked, and one of the lists takes %d at most: restore it after %s, when they have ended",
				id, len(had), share(most), r.Identities[id].Until.UTC().Format(time.RFC3339))
		}
		for _, leaf := range had {
			if r.unlisted() != nil {
				return fmt.Errorf("identity %s has %d certificates from before it was revoked, and an issuer cannot sign revocation lists: restore it after %s, when they have ended",
					id, len(had), r.Identities[id].Until.UTC().Format(time.RFC3339))
			}
			r.list(leaf, now)
		}
		if len(r.Serials) > most && len(had) > 0 {
			return fmt.Errorf("identity %s has %d certificates from before it was revoked, which do not fit in the lists (%d): restore it after %s, when they have ended",
				id, len(had), most, r.Identities[id].Until.UTC().Format(time.RFC3339))
		}
		delete(r.Identities, id)
	}
	return nil
}

// unlisted is an epoch of which leaves may be in use whose issuer cannot sign lists: no proxy is given any list then
// (State.CRLs). nil: there is none.
func (r *record) unlisted() *epoch {
	for i := range r.Epochs {
		if e := &r.Epochs[i]; e.Status != Retired && e.CRL == 0 {
			return e
		}
	}
	return nil
}

// of is the unexpired leaves of an identity, in no order.
func of(c *census, identity string, now time.Time) (out []Issue) {
	for _, leaf := range c.leaves {
		if leaf.Identity == identity && !now.After(leaf.NotAfter.Add(clockTolerance)) {
			out = append(out, leaf)
		}
	}
	return out
}

// renewalsOf is the unexpired leaves that were issued to who showed a certificate, or one that was issued so; in no order. One
// whose predecessor is not in the journal any more is not found, which has then ended for clockTolerance.
func (c *census) renewalsOf(serial string, now time.Time) (out []Issue) {
	next := map[string][]Issue{}
	for _, leaf := range c.leaves {
		if leaf.Previous != "" {
			next[leaf.Previous] = append(next[leaf.Previous], leaf)
		}
	}
	seen := map[string]Issue{}
	for todo := []string{serial}; len(todo) > 0; todo = todo[1:] {
		for _, leaf := range next[todo[0]] {
			if _, again := seen[leaf.Serial]; !again && leaf.Serial != serial {
				seen[leaf.Serial] = leaf
				todo = append(todo, leaf.Serial)
			}
		}
	}
	for leaf := range maps.Values(seen) {
		if !now.After(leaf.NotAfter.Add(clockTolerance)) {
			out = append(out, leaf)
		}
	}
	return out
}
