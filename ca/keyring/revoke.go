package keyring

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/store/kv"
)

// refuse keeps identities from getting certificates; nil where none of them is new.
func refuse(r *record, identities []string, now time.Time) (*record, []kv.Blob, error) {
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
		r.Identities[id.String()], changed = revoked{At: now}, true
	}
	if len(r.Identities) > maxRevoked {
		return nil, nil, fmt.Errorf("%d revoked identities, at most %d fit", len(r.Identities), maxRevoked)
	}
	if !changed {
		return nil, nil, nil
	}
	return r, nil, nil
}

// revoke adds certificates to the record: those named, which must fit, and those in use of the identities as far as they
// fit, the ones that end last first. An identity that is revoked gets nothing new, so what is left out ends by itself; and
// a list without a bound would cost every proxy more than it saves (see Config.MaxRevoked).
func revoke(r *record, c *census, serials, identities []string, most int, now time.Time) (*Revoked, error) {
	r.forget(now)
	out := &Revoked{}
	add := func(serial string) {
		if _, ok := r.Serials[serial]; ok {
			return
		}
		if r.Serials == nil {
			r.Serials = map[string]revoked{}
		}
		leaf, known := c.leaves[serial]
		if !known {
			out.Unknown = append(out.Unknown, serial)
		}
		r.Serials[serial] = revoked{At: now.UTC().Truncate(time.Second), Epoch: leaf.Epoch, Until: leaf.NotAfter}
		out.Serials = append(out.Serials, serial)
	}
	for _, text := range serials {
		n, ok := new(big.Int).SetString(text, 16)
		if !ok || n.Sign() <= 0 || n.BitLen() > 159 {
			return nil, fmt.Errorf("serial %.60q: want a positive hexadecimal number of at most 20 bytes", text)
		}
		add(n.Text(16))
	}
	if len(r.Serials) > most && len(out.Serials) > 0 {
		return nil, fmt.Errorf("%d revoked certificates, at most %d fit", len(r.Serials), most)
	}
	for _, leaf := range of(c, identities, now) {
		if _, ok := r.Serials[leaf.Serial]; !ok && len(r.Serials) >= most {
			if out.Left++; out.Left == 1 {
				out.LeftUntil = leaf.NotAfter
			}
			continue
		}
		add(leaf.Serial)
	}
	slices.Sort(out.Serials)
	slices.Sort(out.Unknown)
	return out, nil
}

// of is the unexpired leaves of identities, the one that ends last first.
func of(c *census, identities []string, now time.Time) []Issue {
	var out []Issue
	for _, leaf := range c.leaves {
		if slices.Contains(identities, leaf.Identity) && !now.After(leaf.NotAfter.Add(clockTolerance)) {
			out = append(out, leaf)
		}
	}
	slices.SortFunc(out, func(a, b Issue) int {
		return cmp.Or(b.NotAfter.Compare(a.NotAfter), cmp.Compare(a.Serial, b.Serial))
	})
	return out
}
