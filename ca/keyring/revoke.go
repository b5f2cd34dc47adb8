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

// An identity is revoked by denial: it gets no certificates, and proxies refuse its existing certificates
// (State.Denied). A denial needs no revocation list, so an identity with thousands of certificates takes no room in the
// lists. A certificate is revoked by its serial number, with all its renewals. The lists of all issuers together have
// room for Config.MaxRevoked certificates. One serial number, with its renewals, may take a tenth of that room (share).

// Denial is a revoked identity.
type Denial struct {
	Identity string `json:"identity"` // SPIFFE ID
	// Until is the end of the last certificate that the identity may have obtained. If all of them had ended when
	// Revoke was last called for the identity, Until is the time of that call. Zero: unknown. After Until the identity
	// still obtains no new certificates.
	Until time.Time `json:"until,omitzero"`
	// Leaves counts the identity's certificates that are journalled one by one, and that are unexpired or ended at most
	// 15 minutes ago. Only Revoke sets Leaves; elsewhere it is 0.
	Leaves int `json:"leaves,omitempty"`
}

// deny adds identities to the record's denied identities. The returned record is nil if all the given identities are
// denied already. Errors: a given text is not a SPIFFE ID, or more than maxDenied identities would be denied.
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

// setDenialEnds records in r the end of the last certificate of each given identity. It returns the denials of the
// identities, in the given order. All given identities must be denied. The journal index c must have been read after
// the denial, so that it has all certificates of the identities.
func setDenialEnds(r *record, c *journalIndex, identities []string, now time.Time) (out []Denial) {
	for _, text := range identities {
		d := Denial{Identity: spiffeid.RequireFromString(text).String(), Until: now.UTC().Truncate(time.Second)}
		for _, leaf := range leavesOf(c, d.Identity, now) {
			d.Leaves++
			if leaf.NotAfter.After(d.Until) {
				d.Until = leaf.NotAfter
			}
		}
		if end := c.aggregatedUntil(d.Identity, now); end.After(d.Until) {
			d.Until = end
		}
		v := r.Identities[d.Identity]
		if end := c.unawareUntil(v.Version, now); end.After(d.Until) {
			d.Until = end
		}
		v.Until = d.Until
		r.Identities[d.Identity] = v
		out = append(out, d)
	}
	return out
}

// revoke adds certificates and their renewals to the record's revoked certificates. The argument limit is the maximum
// number of revoked certificates. The caller sets Revoked.Denied. After an error the caller must discard the record.
func revoke(r *record, c *journalIndex, serials []string, limit int, now time.Time) (*Revoked, error) {
	r.forget(now)
	out := &Revoked{}
	if e := r.unlisted(); e != nil && len(serials) > 0 {
		return nil, fmt.Errorf("the issuer of epoch %d cannot sign revocation lists (key usage cRLSign), so proxies get no lists at all:"+
			" revoke the identity instead", e.Number)
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
		if err := checkRenewals(c, serial, leaf, now); err != nil {
			return nil, err
		}
		renewals := c.renewalsOf(serial, now)
		if n := len(renewals) + 1; n > share(limit) {
			return nil, fmt.Errorf("serial %s: it has %d renewals, and one revocation may take at most %d of the %d places"+
				" in the lists: revoke the identity %s instead",
				serial, n-1, share(limit), limit, renewals[0].Identity)
		}
		for _, one := range append(renewals, Issue{Serial: serial, Epoch: leaf.Epoch, NotAfter: leaf.NotAfter}) {
			if r.list(one, now) {
				out.Serials = append(out.Serials, one.Serial)
			}
		}
		if len(r.Serials) > limit && len(out.Serials) > 0 {
			why := fmt.Sprintf("%d revoked certificates, at most %d fit", len(r.Serials), limit)
			if len(renewals) > 0 {
				why += fmt.Sprintf("; %d of them renew %s: revoke the identity %s instead", len(renewals), serial, renewals[0].Identity)
			}
			return nil, fmt.Errorf("serial %s: %s", serial, why)
		}
	}
	slices.Sort(out.Serials)
	slices.Sort(out.Unknown)
	return out, nil
}

// share returns the number of list entries that one serial number or one restored identity may take: a tenth of the
// limit, and at least 1.
func share(limit int) int { return max(1, limit/10) }

// checkRenewals returns an error if an aggregate (one journal entry for many certificates) may include renewals of a
// certificate. A revocation by serial number would miss these renewals. If the journal lacks the certificate, leaf is
// zero, and any unexpired aggregate causes the error.
func checkRenewals(c *journalIndex, serial string, leaf Issue, now time.Time) error {
	if whose, until := c.aggregatedRenewals(leaf, now); !until.IsZero() {
		return fmt.Errorf("serial %s: %s has certificates that are not journalled one by one, the last until %s, and renewals of this one"+
			" may be among them: revoke the identity instead",
			serial, whose, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// list adds a revoked certificate to the record. It returns false if the record has the certificate already.
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

// restore ends the denial of identities. It revokes the certificates that an identity had when it was denied, since an
// attacker may have these certificates. restore returns an error if an identity is not denied, or if some of these
// certificates cannot be revoked. In the second case the error states a time after which the identity can be restored;
// the time is zero if it is unknown. After an error the caller must discard the record.
func restore(r *record, c *journalIndex, identities []string, limit int, now time.Time) error {
	r.forget(now)
	for _, id := range identities {
		if _, ok := r.Identities[id]; !ok {
			return fmt.Errorf("identity %s is not revoked", id)
		}
		if end := c.aggregatedUntil(id, now); !end.IsZero() {
			return fmt.Errorf("identity %s has certificates from before it was revoked that are not journalled one by one:"+
				" restore it after %s, when they have ended",
				id, end.UTC().Format(time.RFC3339))
		}
		if end := c.unawareUntil(r.Identities[id].Version, now); !end.IsZero() {
			return fmt.Errorf("identity %s may have older certificates of a replica that has not been heard of since the revocation:"+
				" restore it when that replica is back, or after %s",
				id, end.UTC().Format(time.RFC3339))
		}
		had := leavesOf(c, id, now)
		if len(had) > share(limit) {
			return fmt.Errorf("identity %s has %d certificates from before it was revoked, and one identity may take %d places in the lists:"+
				" restore it after %s, when they have ended",
				id, len(had), share(limit), r.Identities[id].Until.UTC().Format(time.RFC3339))
		}
		for _, leaf := range had {
			if r.unlisted() != nil {
				return fmt.Errorf("identity %s has %d certificates from before it was revoked, and an issuer cannot sign revocation lists:"+
					" restore it after %s, when they have ended",
					id, len(had), r.Identities[id].Until.UTC().Format(time.RFC3339))
			}
			r.list(leaf, now)
		}
		if len(r.Serials) > limit && len(had) > 0 {
			return fmt.Errorf("identity %s has %d certificates from before it was revoked, which do not fit in the lists (%d):"+
				" restore it after %s, when they have ended",
				id, len(had), limit, r.Identities[id].Until.UTC().Format(time.RFC3339))
		}
		delete(r.Identities, id)
	}
	return nil
}

// unlisted returns an unretired epoch that has no revocation list, because its issuer cannot sign lists. While such an
// epoch exists, proxies get no lists (State.CRLs). The result is nil if there is no such epoch.
func (r *record) unlisted() *epoch {
	for i := range r.Epochs {
		if e := &r.Epochs[i]; e.Status != Retired && e.CRL == 0 {
			return e
		}
	}
	return nil
}

// leavesOf returns the leaves of an identity, unordered, without leaves that ended more than clockTolerance ago.
func leavesOf(c *journalIndex, identity string, now time.Time) (out []Issue) {
	for _, leaf := range c.leaves {
		if leaf.Identity == identity && !now.After(leaf.NotAfter.Add(clockTolerance)) {
			out = append(out, leaf)
		}
	}
	return out
}

// renewalsOf returns the leaves that renewed a certificate, directly or through other renewals, unordered. Leaves that
// ended more than clockTolerance ago are left out. If the index has pruned a renewal, the result lacks the renewals
// that were made from it.
func (c *journalIndex) renewalsOf(serial string, now time.Time) (out []Issue) {
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
