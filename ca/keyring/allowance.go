package keyring

import (
	"errors"
	"fmt"
	"time"
)

// While etcd is away a replica goes on to renew certificates for an hour, from an allowance that etcd had before (issue 12, item 16).
// An attacker who cuts replicas off from etcd so gets at most as many certificates as the allowance says, none after its end, and none for an identity
// that this replica knew to be revoked. Everything that depends on which certificates were issued takes it that all of an allowance was used: before it
// has been given back or has ended, no new root signs, no epoch retires, and no denied identity is allowed again.

const (
	allowanceLife  = 75 * time.Minute // so that an hour is left whenever etcd goes
	allowanceEvery = 15 * time.Minute // it is recorded again
	allowanceTTL   = 4 * time.Hour    // of the certificates
	renewalsOfOne  = 2                // of one certificate that is shown: an answer may be lost
)

// ErrAllowance: a renewal is not covered by an allowance; the text says why.
var ErrAllowance = errors.New("not issued while etcd cannot record it")

// Allowance is what one replica may issue without etcd, as etcd has it.
type Allowance struct {
	Replica    string    `json:"replica"` // a random name, which its state directory keeps
	Epoch      uint64    `json:"epoch"`   // that signs
	Generation uint64    `json:"generation"`
	Version    uint64    `json:"version"` // of the record that the replica knew
	Until      time.Time `json:"until"`   // nothing is issued from it afterwards
	Last       time.Time `json:"last"`    // no certificate lives longer that was issued from it
	Count      int       `json:"count"`
}

// allowance is a new one under a record.
func allowance(replica string, r *record, count int, now time.Time) Allowance {
	until := now.UTC().Truncate(time.Second).Add(allowanceLife)
	return Allowance{Replica: replica, Epoch: r.in(Active).Number, Generation: r.Generation, Version: r.Version,
		Until: until, Last: until.Add(allowanceTTL), Count: count}
}

// ended says whether nothing that was issued from it is accepted by anyone any more.
func (a Allowance) ended(now time.Time) bool { return now.After(a.Last.Add(clockTolerance)) }

// covers says whether whatever another one promises it promises too, so that it may take its place before its owner knows.
func (a Allowance) covers(other Allowance) bool {
	return a.Epoch == other.Epoch && a.Generation == other.Generation
}

// stale says whether it should be recorded again under a record.
func (a Allowance) stale(r *record, now time.Time) bool {
	return a.Version != r.Version || a.Epoch != r.in(Active).Number || a.Until.Sub(now) < allowanceLife-allowanceEvery || a.Until.Sub(now) > allowanceLife
}

// purse is what is left of an allowance.
type purse struct {
	allowance Allowance
	spent     int
	of        map[string]int // by identity
	shown     map[string]int // by serial number of the certificate that was shown
}

func newPurse(a Allowance) purse {
	return purse{allowance: a, of: map[string]int{}, shown: map[string]int{}}
}

// refuses says why a renewal may not be issued from it; nil: it may. shownEnds is when the certificate ends that was shown, whose serial
// number is i.Previous; s is what the replica knew last.
func (p *purse) refuses(i Issue, shownEnds time.Time, s *State, now time.Time) error {
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
		return no("first certificates wait for etcd; only an unexpired certificate is renewed")
	case a.Until.IsZero():
		return no("no allowance was recorded for this replica")
	case s.Alarm != nil:
		return no("what etcd holds is refused: %v", s.Alarm)
	case i.Epoch != a.Epoch || i.Generation != a.Generation:
		return no("the allowance is for epoch %d with bundle %d, epoch %d and bundle %d are in force", a.Epoch, a.Generation, i.Epoch, i.Generation)
	case now.After(a.Until):
		return no("the allowance ended at %s", a.Until.Format(time.RFC3339))
	case a.Until.Sub(now) > allowanceLife+clockTolerance: // a replica that starts without etcd can compare its clock with nothing else
		return no("the clock of this machine says %s, before the allowance was recorded: set it right", now.UTC().Format(time.RFC3339))
	case i.NotAfter.After(a.Last) || i.NotAfter.Sub(now) > allowanceTTL:
		return no("a certificate until %s outlives the allowance", i.NotAfter.UTC().Format(time.RFC3339))
	case !i.NotAfter.After(shownEnds):
		return no("the certificate that was shown lasts until %s, longer than its renewal would", shownEnds.UTC().Format(time.RFC3339))
	case p.shown[i.Previous] >= renewalsOfOne:
		return no("certificate %s was renewed %d times meanwhile", i.Previous, renewalsOfOne)
	case p.spent >= a.Count:
		return no("the allowance of %d renewals is used up", a.Count)
	case p.of[i.Identity] >= a.Count-p.spent: // half for one that takes all it gets, a part in n+1 for each of n: others find some left
		return no("%s has had its part of the allowance, %d of %d renewals", i.Identity, p.of[i.Identity], a.Count)
	}
	return nil
}

func (p *purse) spend(i Issue) {
	p.spent++
	p.of[i.Identity]++
	p.shown[i.Previous]++
}
