package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/clock"
	"navarch.io/navarch/store/obs"
)

// current provides the authority in force to the CA service.
type current struct{ ring *keyring.Keyring }

// Current returns the authority in force. A replica that started while etcd is away has not compared its clock, and
// also gets one. Such a replica only renews (Spend), within the number and times that etcd recorded while the clock was
// compared. The error reports why nothing can be signed.
func (c current) Current() (*caserve.Current, error) {
	if err := c.ring.ClockOff(); err != nil && !(errors.Is(err, clock.ErrNotCompared) && c.ring.Away()) {
		return nil, err
	}
	s := c.ring.State()
	if s.Active == nil {
		return nil, s.Sealed
	}
	return &caserve.Current{Authority: s.Active, Bundle: s.Bundle, Publication: s.Generation}, nil
}

// canSign reports whether this process can issue certificates: the keyring is in force, and this machine's clock is
// trusted. By a wrong clock, credentials would seem expired that are not. Then nothing is signed, and no stream ends
// for it (ca/expiry).
func canSign(ring interface {
	State() *keyring.State
	ClockOff() error
}) bool {
	return ring.State().Active != nil && ring.ClockOff() == nil
}

// journal records certificates in the keyring's journal.
type journal struct{ ring *keyring.Keyring }

// Append implements caserve.Journal: it returns once etcd has the entry. Errors are those of inServe.
func (j journal) Append(ctx context.Context, e caserve.Entry) error {
	if err := j.ring.ClockOff(); err != nil {
		return err
	}
	return inServe(j.ring.Append(ctx, issueOf(e)))
}

func issueOf(e caserve.Entry) keyring.Issue {
	return keyring.Issue{
		Serial: e.Serial, Identity: e.Identity.String(), Epoch: e.Epoch, Generation: e.Publication, Previous: e.Previous,
		NotBefore: e.NotBefore, NotAfter: e.NotAfter, By: e.By, Pod: e.Pod, Peer: e.Peer, Origin: keyring.OriginOf(e.Credential),
	}
}

// inServe converts the keyring's errors into those that the CA service distinguishes.
func inServe(err error) error {
	switch {
	case errors.Is(err, keyring.ErrStale):
		return fmt.Errorf("%w: %w", caserve.ErrStale, err)
	case errors.Is(err, keyring.ErrRevoked):
		return fmt.Errorf("%w: %w", caserve.ErrRevoked, err)
	}
	return err
}

// renewals records renewals on this replica's disk while etcd is away. Errors are those of inServe.
type renewals struct{ *keyring.Keyring }

// Spend counts one renewal, recorded as e, and stores the count on disk. shownEnds is the end of the certificate that
// the caller has shown. Errors are those of inServe.
func (s renewals) Spend(e caserve.Entry, shownEnds time.Time) error {
	return inServe(s.Keyring.Spend(issueOf(e), shownEnds))
}

// revocations reports identities and serial numbers that the keyring revokes.
type revocations struct{ ring *keyring.Keyring }

// RevokedIdentity implements the CA's check of identities.
func (r revocations) RevokedIdentity(id spiffeid.ID) bool { return r.ring.State().RevokedIdentity(id) }

// RevokedSerial implements the CA's check of serial numbers.
func (r revocations) RevokedSerial(serial string) bool { return r.ring.State().RevokedSerial(serial) }

// holders records reports about the roots that clients hold.
type holders struct{ ring *keyring.Keyring }

// Held stores a client's report about the roots that it trusts in the keyring. Errors are those of Keyring.Held.
func (h holders) Held(ctx context.Context, held caserve.Holder) error {
	return h.ring.Held(ctx, held.Serial, held.Identity.String(), keyring.OriginOf(held.Credential), held.Roots, held.NotAfter)
}

// certificateHooks count under istiod's names.
func certificateHooks() caserve.Hooks {
	return caserve.Hooks{
		Request:         obs.CSRs.Inc,
		Issued:          func(took time.Duration) { obs.CertificatesIssued.Inc(); obs.IssueTime.Observe(took.Seconds()) },
		Unauthenticated: obs.CSRAuthFailures.Inc,
		BadCSR:          obs.CSRParseErrors.Inc,
		BadIdentity:     obs.CSRIdentityErrors.Inc,
		SignFailed:      obs.CSRSignErrors.Inc,
		Turned:          func(code string) { obs.Turned.WithLabelValues(code).Inc() },
		Waited: func(first bool, d time.Duration) {
			kind := "renewal"
			if first {
				kind = "first"
			}
			obs.QueueWait.WithLabelValues(kind).Observe(d.Seconds())
		},
	}
}

// gauges sets the CA's metrics as of now.
func (a *authority) gauges(now time.Time) {
	k := a.ring.Stats()
	obs.Sealed.Set(flag(k.Sealed))
	obs.StoreAlarm.WithLabelValues("keyring").Set(flag(k.Alarm))
	obs.Generation.Set(float64(k.Generation))
	for status, n := range k.Epochs {
		obs.Epochs.WithLabelValues(string(status)).Set(float64(n))
	}
	if !k.ChainEnd.IsZero() {
		obs.ChainExpiry.Set(float64(k.ChainEnd.Unix()))
		obs.ChainExpiryIn.Set(k.ChainEnd.Sub(now).Seconds())
	}
	if !k.RootEnd.IsZero() {
		obs.RootExpiry.Set(float64(k.RootEnd.Unix()))
		obs.RootExpiryIn.Set(k.RootEnd.Sub(now).Seconds())
	}
	obs.WaitingHolders.Set(float64(k.Waiting))
	obs.Revocations.WithLabelValues("certificates").Set(float64(k.RevokedSerials))
	obs.Revocations.WithLabelValues("identities").Set(float64(k.RevokedIdentities))
	obs.KeyringPeers.Set(float64(k.Peers))
	obs.Allowance.Set(float64(k.Allowance))
	obs.JournalLag.Set(k.Lag.Seconds())
	queued(a.server.Stats())
}

// queued sets the metrics of the request queue.
func queued(q caserve.Stats) {
	for where, n := range map[string]int{"first": q.First, "renewal": q.Renewals,
		"delayed": q.Delayed, "signing": q.Signing, "writing": q.Writing} {
		obs.SigningQueue.WithLabelValues(where).Set(float64(n))
	}
}
