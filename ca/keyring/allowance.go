package keyring

import (
	"errors"
	"fmt"
	"time"
)

// An allowance is a replica's permission to renew a number of certificates while etcd is away. The replica records the
// allowance in etcd in advance. The allowance lasts for an hour or more after etcd is lost. An attacker who cuts
// replicas off from etcd gets at most the certificates of the allowance. These certificates end by Allowance.Last. They
// are not for identities that this replica knew to be revoked. Decisions that depend on the issued certificates count
// every recorded allowance as used up. So an allowance delays three changes, until Allowance.Last or until a newer
// allowance replaces it. A root that is not in the allowance's trust bundle does not start to sign, unless an operator
// forces it. The allowance's epoch (signing certificate) is not retired. An identity that was denied after the
// allowance was recorded is not restored.

const (
	allowanceLife  = 75 * time.Minute // replaced every 15 min, so that at least an hour is left when etcd goes away
	allowanceEvery = 15 * time.Minute // interval at which a new allowance is recorded
	allowanceTTL   = 4 * time.Hour    // longest remaining lifetime of a certificate when it is issued
	renewalsOfOne  = 2                // permitted renewals of one certificate; above 1, since a response may be lost
)

// ErrAllowance means that this replica's allowance does not cover a renewal, or cannot be written to disk. The error's
// text states the reason.
var ErrAllowance = errors.New("not issued while etcd cannot record it")

// Allowance permits one replica to renew a number of certificates without etcd. It is stored in etcd and on the
// replica's disk. Each field is fixed when the allowance is recorded.
type Allowance struct {
	Replica    string `json:"replica"`    // a random name, stored in the replica's data directory
	Epoch      uint64 `json:"epoch"`      // number of the signing certificate (epoch) that signs the renewals
	Generation uint64 `json:"generation"` // generation of the trust bundle that is delivered with the renewals
	// Version is the version of the record (the keyring without its keys) when the allowance was recorded.
	Version uint64    `json:"version"`
	Until   time.Time `json:"until"` // no renewal is issued after this time
	Last    time.Time `json:"last"`  // no certificate of this allowance ends later
	Count   int       `json:"count"` // number of permitted renewals
}

// allowance returns a new allowance for the keyring's record r, which must have an active epoch.
func allowance(replica string, r *record, count int, now time.Time) Allowance {
	until := now.UTC().Truncate(time.Second).Add(allowanceLife)
	return Allowance{Replica: replica, Epoch: r.in(Active).Number, Generation: r.Generation, Version: r.Version,
		Until: until, Last: until.Add(allowanceTTL), Count: count}
}

// ended reports whether all certificates issued from the allowance have expired.
func (a Allowance) ended(now time.Time) bool { return now.After(a.Last.Add(clockTolerance)) }

// covers reports whether both allowances have the same epoch and trust bundle. If so, the new allowance may be recorded
// in etcd while the replica still renews from its previous one.
func (a Allowance) covers(other Allowance) bool {
	return a.Epoch == other.Epoch && a.Generation == other.Generation
}

// stale reports whether a new allowance should replace this one. r is the keyring's present record.
func (a Allowance) stale(r *record, now time.Time) bool {
	return a.Version != r.Version || a.Epoch != r.in(Active).Number ||
		a.Until.Sub(now) < allowanceLife-allowanceEvery || a.Until.Sub(now) > allowanceLife
}

// balance counts the renewals issued from an allowance.
type balance struct {
	allowance      Allowance
	spent          int
	perIdentity    map[string]int // by identity
	perCertificate map[string]int // by serial number of the renewed certificate
}

func newBalance(a Allowance) balance {
	return balance{allowance: a, perIdentity: map[string]int{}, perCertificate: map[string]int{}}
}

// refuses returns the reason to refuse a renewal, or nil if the renewal may be issued. The error matches ErrAllowance
// or ErrRevoked. i.Previous is the serial number of the certificate to renew, and shownEnds is the end of that
// certificate. s is the last known state of the keyring.
func (p *balance) refuses(i Issue, shownEnds time.Time, s *State, now time.Time) error {
	a := p.allowance
	no := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrAllowance, fmt.Sprintf(format, args...))
	}
	_, denied := s.identities[i.Identity]
	switch {
	case denied:
		return ErrRevoked
	case s.RevokedSerial(i.Previous):
		return fmt.Errorf("%w: certificate %s", ErrRevoked, i.Previous)
	case i.Previous == "" || !now.Before(shownEnds):
		return no("without etcd only unexpired certificates are renewed, and first certificates are not issued")
	case a.Until.IsZero():
		return no("no allowance was recorded for this replica")
	case s.Alarm != nil:
		return no("the keyring in etcd is refused: %v", s.Alarm)
	case i.Epoch != a.Epoch || i.Generation != a.Generation:
		return no("the allowance is for epoch %d and bundle %d, but epoch %d and bundle %d are in force",
			a.Epoch, a.Generation, i.Epoch, i.Generation)
	case now.After(a.Until):
		return no("the allowance ended at %s", a.Until.Format(time.RFC3339))
	case a.Until.Sub(now) > allowanceLife+clockTolerance: // a replica that starts without etcd has no other time to compare with
		return no("the clock of this machine says %s, before the allowance was recorded: set it right", now.UTC().Format(time.RFC3339))
	case i.NotAfter.After(a.Last) || i.NotAfter.Sub(now) > allowanceTTL:
		return no("a certificate until %s outlives the allowance", i.NotAfter.UTC().Format(time.RFC3339))
	case !i.NotAfter.After(shownEnds):
		return no("the certificate that was shown lasts until %s, longer than its renewal would", shownEnds.UTC().Format(time.RFC3339))
	case p.perCertificate[i.Previous] >= renewalsOfOne:
		return no("certificate %s was renewed %d times already", i.Previous, renewalsOfOne)
	case p.spent >= a.Count:
		return no("the allowance of %d renewals is used up", a.Count)
	// A single identity gets at most half of the allowance. If n identities renew as much as they may, each gets about
	// 1/(n+1).
	case p.perIdentity[i.Identity] >= a.Count-p.spent:
		return no("%s has used up its part of the allowance, %d of %d renewals", i.Identity, p.perIdentity[i.Identity], a.Count)
	}
	return nil
}

func (p *balance) spend(i Issue) {
	p.spent++
	p.perIdentity[i.Identity]++
	p.perCertificate[i.Previous]++
}
