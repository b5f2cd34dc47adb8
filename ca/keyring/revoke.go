package keyring

import (
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

// revoke adds certificates to the record: those named, and those in use of the identities.
func revoke(r *record, c *census, serials, identities []string, now time.Time) (*Revoked, error) {
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
		r.Serials[serial] = revoked{At: now, Epoch: leaf.Epoch, Until: leaf.NotAfter}
		out.Serials = append(out.Serials, serial)
	}
	for _, text := range serials {
		n, ok := new(big.Int).SetString(text, 16)
		if !ok || n.Sign() <= 0 || n.BitLen() > 159 {
			return nil, fmt.Errorf("serial %.60q: want a positive hexadecimal number of at most 20 bytes", text)
		}
		add(n.Text(16))
	}
	for serial, leaf := range c.leaves {
		if slices.Contains(identities, leaf.Identity) {
			add(serial)
		}
	}
	slices.Sort(out.Serials)
	slices.Sort(out.Unknown)
	if len(r.Serials) > maxRevoked {
		return nil, fmt.Errorf("%d revoked certificates, at most %d fit: rotate the root instead", len(r.Serials), maxRevoked)
	}
	return out, nil
}
