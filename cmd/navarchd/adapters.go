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

// current tells the CA service which authority signs at present.
type current struct{ ring *keyring.Keyring }

// Current returns the authority that signs at present. The error reports why nothing can be signed: the clock is not
// trusted, or the keyring is sealed. If etcd has been unreachable since the replica's start, the clock has not been
// compared yet, but Current returns the authority. Without etcd, the replica only renews certificates, within an
// allowance that was recorded earlier (Spend).
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

// canSign reports whether this process can issue certificates: an authority is active, and this machine's clock is
// trusted. With a wrong clock, valid credentials could seem expired.
func canSign(ring interface {
	State() *keyring.State
	ClockOff() error
}) bool {
	return ring.State().Active != nil && ring.ClockOff() == nil
}

// journal records certificates in the keyring's journal.
type journal struct{ ring *keyring.Keyring }

// Append implements caserve.Journal. It blocks like Keyring.Append, and returns once the entry is durable in etcd.
// Errors: the error of Keyring.ClockOff if the clock is not trusted, or an error of Keyring.Append, converted by
// inServe.
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

// inServe wraps the keyring's errors ErrStale and ErrRevoked in the CA service's errors of the same names. Other
// errors, and nil, are returned unchanged.
func inServe(err error) error {
	switch {
	case errors.Is(err, keyring.ErrStale):
		return fmt.Errorf("%w: %w", caserve.ErrStale, err)
	case errors.Is(err, keyring.ErrRevoked):
		return fmt.Errorf("%w: %w", caserve.ErrRevoked, err)
	}
	return err
}

// renewals records renewals on this replica's disk while etcd is away.
type renewals struct{ *keyring.Keyring }

// Spend records on disk the renewal that e describes. shownEnds is the expiry of the certificate that the caller
// showed. Errors are those of Keyring.Spend, converted by inServe.
func (s renewals) Spend(e caserve.Entry, shownEnds time.Time) error {
	return inServe(s.Keyring.Spend(issueOf(e), shownEnds))
}

// revocations reports identities and serial numbers that the keyring revokes.
type revocations struct{ ring *keyring.Keyring }

// RevokedIdentity reports whether the keyring's present state revokes an identity. It implements caserve.Revocations.
func (r revocations) RevokedIdentity(id spiffeid.ID) bool { return r.ring.State().RevokedIdentity(id) }

// RevokedSerial reports whether the keyring's present state revokes a certificate. serial is lower-case hexadecimal
// without leading zeros. It implements caserve.Revocations.
func (r revocations) RevokedSerial(serial string) bool { return r.ring.State().RevokedSerial(serial) }

// holders records the root certificates that clients report to have.
type holders struct{ ring *keyring.Keyring }

// Held stores in the keyring a client's report of its trusted roots, and blocks until etcd has the report. Held stores
// nothing and returns nil in three cases: the client lacks a root of the present bundle, the keyring already knows the
// report, or a quota is used up. Errors are those of Keyring.Held.
func (h holders) Held(ctx context.Context, held caserve.Holder) error {
	return h.ring.Held(ctx, held.Serial, held.Identity.String(), keyring.OriginOf(held.Credential), held.Roots, held.NotAfter)
}

// certificateHooks returns the hooks by which the CA service updates metrics.
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

// gauges sets the CA's metrics. now is the time from which remaining lifetimes are computed.
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
