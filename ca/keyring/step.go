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

// renewAt is the part of a self-signed root's life, be it istiod's, after which a new one is prepared by itself.
const renewAt = 0.8

// step is every rule of a rotation: what the record becomes at a time, given what is known of the leaves in use (looked
// at only where an epoch is prepared or retiring). It returns nil where nothing changes. The census must have been read
// after the record: what is issued later is journalled under the record's successor, or not at all. waiting is how many
// holders an epoch waits for.
func step(r *record, now time.Time, c *census) (next *record, happened []string, waiting int) {
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
		if end := c.last(e.Number); now.After(end.Add(clockTolerance)) || end.IsZero() {
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

// ended says whether a revoked certificate is known to have expired: its list may forget it when it is signed again.
func ended(v revoked, now time.Time) bool {
	return !v.Until.IsZero() && now.After(v.Until.Add(clockTolerance))
}

// forgotten says whether a revoked certificate needs no memory any more: it has expired, and so has what a replica may have issued for it
// last, without etcd, which is revoked when that replica is back (handOver).
func forgotten(v revoked, now time.Time) bool { return ended(v, now.Add(-allowanceTTL)) }

// forget leaves out of the record what needs no memory any more.
func (r *record) forget(now time.Time) {
	maps.DeleteFunc(r.Serials, func(_ string, v revoked) bool { return forgotten(v, now) })
}

func outlived(r *record, now time.Time) bool {
	for _, v := range r.Serials {
		if forgotten(v, now) {
			return true
		}
	}
	return false
}

// ageing says whether the active root should have a successor prepared.
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

// adopt is what a user's CA makes of the record. fresh: a new epoch was added, whose key must be sealed. A CA that an
// epoch has already changes nothing but may bring roots, which are only ever added, and revocation lists, of which those with the
// highest number stay: replicas see new files at different times, and must not take turns.
func adopt(r *record, a *issue.Authority, now time.Time) (next *record, fresh bool, err error) {
	next = r.clone()
	for i := range next.Epochs {
		e := &next.Epochs[i]
		if !bytes.Equal(e.Cert, a.Certificate.Raw) {
			continue
		}
		if e.Status == Retired {
			return nil, false, fmt.Errorf("cacerts: its CA certificate is that of epoch %d, which is retired", e.Number)
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
		return nil, false, fmt.Errorf("cacerts: its CA certificate cannot sign revocation lists (key usage cRLSign, subject key identifier), and %d certificates and %d identities are revoked: the one before signs on",
			len(next.Serials), len(next.Identities))
	}
	next.add(a, originCACerts, now)
	return next, true, nil
}

// takeLists adds the user's own revocation lists, and says whether any is newer than those that the epoch has.
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
