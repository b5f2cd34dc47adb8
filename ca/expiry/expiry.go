// Package expiry decides when streams end whose credential has expired (issue 12, item 3). A stream ends when its identity has shown no newer
// credential here for a grace period, although it could have obtained one during all that time. While none can be obtained, streams stay, and
// are given no private keys beyond those that they have.
//
// A process with a keyring knows whether credentials can be obtained. One without goes by the certificates that callers show to it: where one
// of them became valid long enough after a credential's end, certificates were being issued then, and the identity has shown none of them.
//
// Owns: the latest end of the credentials that each identity showed here, and when certificates shown here began.  Reads: callers that ca/attest verified.  Never: ends a stream
// itself, nor verifies a credential.
package expiry

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
)

const (
	grace  = 5 * time.Minute
	spread = 10 * time.Minute // over which the streams end whose credentials ended at one moment
	every  = 10 * time.Second
	pause  = time.Hour // where no certificate began for so long, perhaps none could be had
)

// Expiry has what this process knows of credentials. Its methods may be called from any goroutine.
type Expiry struct {
	seed maphash.Seed

	mu      sync.Mutex
	newest  map[spiffeid.ID]time.Time // the latest end of the credentials that an identity showed; of those that have not ended for long
	issuing time.Time                 // since when certificates can be had without a pause; zero: they cannot
	byShown bool                      // nobody says whether they can: what is shown does
	began   time.Time                 // the latest beginning of a certificate that was shown
	series  time.Time                 // when the first was shown of those that began without a pause between them
}

// New knows of no credential, and of nobody who issues any.
func New() *Expiry {
	return &Expiry{seed: maphash.MakeSeed(), newest: map[spiffeid.ID]time.Time{}}
}

// shown takes note of a credential that was verified.
func (e *Expiry) shown(who attest.Caller, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if who.NotAfter.After(e.newest[who.ID]) {
		e.newest[who.ID] = who.NotAfter
	}
	if who.NotBefore.After(e.began) && !who.NotBefore.After(now) {
		if who.NotBefore.Sub(e.began) > pause {
			e.series = now
		}
		e.began = who.NotBefore
	}
}

// look takes note of whether certificates can be had now. It must be called every every.
func (e *Expiry) look(now time.Time, can bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !can:
		e.issuing = time.Time{}
	case e.issuing.IsZero():
		e.issuing = now
	}
	for id, end := range e.newest {
		if now.Sub(end) > grace+spread {
			delete(e.newest, id)
		}
	}
}

// Ended says whether the credential of a caller has ended and they have shown no newer one, and since when one can be had; zero: none
// can.
func (e *Expiry) Ended(who attest.Caller, now time.Time) (ended bool, issuing time.Time) {
	if who.NotAfter.IsZero() || !now.After(who.NotAfter) {
		return false, time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byShown {
		if e.began.Sub(who.NotAfter) >= e.wait(who) {
			issuing = e.series
		}
		return !e.newest[who.ID].After(now), issuing
	}
	return !e.newest[who.ID].After(now), e.issuing
}

// wait is for how long after the end of its credential a stream stays at least.
func (e *Expiry) wait(who attest.Caller) time.Duration {
	return grace + time.Duration(maphash.String(e.seed, who.ID.String()+who.Credential()+who.Serial)%uint64(spread))
}

// Refused says why a caller is served no longer; nil: they are.
func (e *Expiry) Refused(who attest.Caller, now time.Time) error {
	ended, since := e.Ended(who, now)
	if !ended || since.IsZero() {
		return nil
	}
	if since.Before(who.NotAfter) {
		since = who.NotAfter
	}
	if now.Sub(since) < e.wait(who) {
		return nil
	}
	return fmt.Errorf("the credential of %s ended at %s, and it has shown no newer one", who.ID, who.NotAfter.UTC().Format(time.RFC3339))
}

// Noting is an authenticator whose verified callers e takes note of.
func (e *Expiry) Noting(by attest.Authenticator) attest.Authenticator { return noting{by, e} }

type noting struct {
	attest.Authenticator
	expiry *Expiry
}

// Authenticate implements attest.Authenticator.
func (n noting) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := n.Authenticator.Authenticate(ctx)
	if err == nil {
		n.expiry.shown(who, time.Now())
	}
	return who, err
}

// Run looks whether certificates can be had, and has the streams end whose credentials have ended, until ctx ends. issuing says whether
// one can be had now, as far as this process knows, nil: it knows nothing of that, and goes by the certificates that are shown; recheck
// asks Refused of each stream's caller.
func (e *Expiry) Run(ctx context.Context, issuing func() bool, recheck func()) error {
	if issuing == nil {
		issuing = func() bool { return false }
		e.mu.Lock()
		e.byShown = true
		e.mu.Unlock()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			e.look(now, issuing())
			recheck()
		case <-ctx.Done():
			return nil
		}
	}
}
