package main

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
	expiryGrace  = 5 * time.Minute
	expirySpread = 10 * time.Minute // over which the streams end whose credentials ended at one moment
	expiryEvery  = 10 * time.Second
)

// expiry says what becomes of streams whose credential has ended (issue 12, item 3). A stream ends when its identity has shown no
// newer credential here for a grace, and could have had one all that time. While none can be had streams stay, without private
// keys that they did not have.
type expiry struct {
	seed maphash.Seed

	mu      sync.Mutex
	newest  map[spiffeid.ID]time.Time // the latest end of the credentials that an identity showed; of those that have not ended for long
	issuing time.Time                 // since when certificates can be had without a pause; zero: they cannot
}

func newExpiry() *expiry {
	return &expiry{seed: maphash.MakeSeed(), newest: map[spiffeid.ID]time.Time{}}
}

// shown takes note of a credential that was verified.
func (e *expiry) shown(who attest.Caller) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if who.NotAfter.After(e.newest[who.ID]) {
		e.newest[who.ID] = who.NotAfter
	}
}

// look takes note of whether certificates can be had now. It must be called every expiryEvery.
func (e *expiry) look(now time.Time, can bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !can:
		e.issuing = time.Time{}
	case e.issuing.IsZero():
		e.issuing = now
	}
	for id, end := range e.newest {
		if now.Sub(end) > expiryGrace+expirySpread {
			delete(e.newest, id)
		}
	}
}

// ended says whether the credential of a caller has ended and they have shown no newer one, and since when one can be had; zero: none
// can.
func (e *expiry) ended(who attest.Caller, now time.Time) (ended bool, issuing time.Time) {
	if who.NotAfter.IsZero() || !now.After(who.NotAfter) {
		return false, time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.newest[who.ID].After(now), e.issuing
}

// refused says why a caller is served no longer; nil: they are.
func (e *expiry) refused(who attest.Caller, now time.Time) error {
	ended, since := e.ended(who, now)
	if !ended || since.IsZero() {
		return nil
	}
	wait := expiryGrace + time.Duration(maphash.String(e.seed, who.ID.String()+who.Credential()+who.Serial)%uint64(expirySpread))
	if since.Before(who.NotAfter) {
		since = who.NotAfter
	}
	if now.Sub(since) < wait {
		return nil
	}
	return fmt.Errorf("the credential of %s ended at %s, and it has shown no newer one", who.ID, who.NotAfter.UTC().Format(time.RFC3339))
}

// noting is an authenticator that takes note of what it verified.
type noting struct {
	attest.Authenticator
	expiry *expiry
}

// Authenticate implements attest.Authenticator.
func (n noting) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := n.Authenticator.Authenticate(ctx)
	if err == nil {
		n.expiry.shown(who)
	}
	return who, err
}

// expire ends the streams whose credentials have ended.
func (p *process) expire(ctx context.Context) error {
	tick := time.NewTicker(expiryEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			p.callers.expiry.look(now, p.issues())
			if p.server != nil {
				p.server.Recheck()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// issues says whether certificates can be had, as far as this process knows: the keyring signs, and etcd answers, which has
// the journal.
func (p *process) issues() bool {
	return p.ca != nil && p.ca.ring.State().Active != nil && p.mirror != nil && p.mirror.Status().Away == nil
}
