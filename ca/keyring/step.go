package keyring

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/ca/issue"
)

// renewAt is the fraction of a root's lifetime after which a successor is prepared. It applies to roots that Navarch or
// istiod made.
const renewAt = 0.8

// step applies the rules of a rotation to the record. The first result is a changed copy of the record, or nil if
// nothing changes. The second result describes each change of an epoch's status, for the log. The third result is the
// number of certificate holders that lack the root of a prepared epoch. It is 0 if this epoch becomes active.
//
// step reads the journal index only if an epoch is prepared or retiring. The caller must have read the index after the
// record. Certificates that are journalled later do not matter. The active epoch signs them, and each of them is
// delivered with the prepared root (admit).
func step(r *record, now time.Time, c *journalIndex) (next *record, happened []string, waiting int) {
	next = r.clone()
	if p := next.in(Prepared); p != nil {
		missing := c.missing(p.Published, now)
		waiting = len(missing)
		switch {
		case len(missing) == 0:
			happened = append(happened, fmt.Sprintf("epoch %d signs: every leaf's holder has its root", p.Number))
		case p.Forced:
			happened = append(happened, fmt.Sprintf("epoch %d signs by force: %d holders do not have its root", p.Number, len(missing)))
		}
		if len(happened) > 0 {
			next.activate(p, now)
			waiting = 0
		}
	}
	for _, e := range r.Epochs {
		if e.Status != Retiring {
			continue
		}
		if end := c.lastEnd(e.Number); now.After(end.Add(clockTolerance)) || end.IsZero() {
			next.retire(next.epoch(e.Number), now)
			happened = append(happened, fmt.Sprintf("epoch %d is retired: no leaf of it is in use", e.Number))
		}
	}
	if outlived(next, now) {
		next.forget(now)
	} else if happened == nil {
		return nil, nil, waiting
	}
	return next, happened, waiting
}

// ended reports whether a revoked certificate, or a denied identity's last certificate, has expired. It returns false
// if the end is unknown.
func ended(v revoked, now time.Time) bool {
	return !v.Until.IsZero() && now.After(v.Until.Add(clockTolerance))
}

// forgotten reports whether the record may drop a revoked certificate. The certificate must have expired. A replica
// without etcd may have renewed it. These renewals must have expired too, because they are revoked only when that
// replica reaches etcd again (handOver).
func forgotten(v revoked, now time.Time) bool { return ended(v, now.Add(-allowanceTTL)) }

// forget drops the revoked certificates for which forgotten returns true.
func (r *record) forget(now time.Time) {
	maps.DeleteFunc(r.Serials, func(_ string, v revoked) bool { return forgotten(v, now) })
}

// outlived reports whether forget would drop a certificate.
func outlived(r *record, now time.Time) bool {
	for _, v := range r.Serials {
		if forgotten(v, now) {
			return true
		}
	}
	return false
}

// ageing reports whether a successor of the active root must be prepared now. It is false for a user's own CA.
func ageing(r *record, now time.Time) bool {
	a := r.in(Active)
	if a == nil || a.Origin == originCACerts || r.in(Prepared) != nil {
		return false
	}
	certs, err := certificates([][]byte{a.Cert})
	if err != nil {
		return false
	}
	life := certs[0].NotAfter.Sub(certs[0].NotBefore)
	return now.After(certs[0].NotBefore.Add(time.Duration(float64(life) * renewAt)))
}

// adopt adds the user's CA to a copy of the record. The first result is the copy, or nil if nothing changes. The second
// result reports whether an epoch was added. The key of an added epoch must be sealed. If an epoch has the CA's
// certificate already, only further roots and newer revocation lists are added. Nothing is ever removed, since replicas
// read changed files at different times and must not undo one another's changes.
//
// adopt fails if the CA's epoch is retired, or if a stored revocation list of this epoch does not parse. A new CA is
// refused while an epoch is prepared. A new CA that cannot sign revocation lists is refused while certificates or
// identities are revoked.
func adopt(r *record, a *issue.Authority, now time.Time) (next *record, fresh bool, err error) {
	next = r.clone()
	for i := range next.Epochs {
		e := &next.Epochs[i]
		if !bytes.Equal(e.Cert, a.Certificate.Raw) {
			continue
		}
		if e.Status == Retired {
			return nil, false, fmt.Errorf("cacerts: the CA certificate is that of epoch %d, which is retired", e.Number)
		}
		before := next.bundle()
		for _, root := range a.Roots {
			if !slices.ContainsFunc(e.Roots, func(b []byte) bool { return bytes.Equal(b, root.Raw) }) {
				e.Roots = append(e.Roots, root.Raw)
			}
		}
		listed, err := e.takeLists(a.Lists)
		if err != nil {
			return nil, false, err
		}
		if !next.rebundle(before) && !listed {
			return nil, false, nil
		}
		return next, false, nil
	}
	if p := next.in(Prepared); p != nil {
		return nil, false, fmt.Errorf("cacerts: a new CA certificate waits until the rotation to epoch %d ends, or is aborted", p.Number)
	}
	if next.forget(now); !a.CanRevoke() && len(next.Serials)+len(next.Identities) > 0 {
		return nil, false, fmt.Errorf("cacerts: the CA certificate cannot sign revocation lists (key usage cRLSign, subject key identifier),"+
			" and %d certificates and %d identities are revoked: the previous CA keeps signing",
			len(next.Serials), len(next.Identities))
	}
	next.add(a, originCACerts, now)
	return next, true, nil
}

// takeLists merges the user's own revocation lists into the epoch, and reports whether the epoch's lists changed.
func (e *epoch) takeLists(lists []*x509.RevocationList) (newer bool, err error) {
	have, err := e.lists()
	if err != nil {
		return false, err
	}
	var out [][]byte
	for _, list := range issue.NewestLists(have, lists...) {
		out = append(out, list.Raw)
	}
	newer = !slices.EqualFunc(e.Lists, out, bytes.Equal)
	e.Lists = out
	return newer, nil
}
