// Package expiry decides when streams with an expired credential end. A stream ends if two conditions hold. The first
// is that newer credentials could be obtained for a grace period after the stream's credential expired. The second is
// that no caller with the stream's identity has shown an unexpired credential to this process. While credentials cannot
// be obtained, streams stay, but receive no further private keys.
//
// A process with the CA's keys knows whether credentials can be obtained. A process without them infers it from the
// certificates that callers show. A shown certificate that became valid long enough after a credential's end proves
// that newer credentials could be obtained after that end.
//
// Owns: the latest end of each identity's shown credentials, and the latest start of a shown certificate.
// Reads: callers that ca/attest verified.
// Never: ends a stream; verifies a credential.
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
	grace  = 5 * time.Minute  // minimum time that a stream stays after its credential expired
	spread = 10 * time.Minute // bound of an additional delay, so that streams whose credentials ended together end at different times
	every  = 10 * time.Second // interval at which Run checks the streams
	pause  = time.Hour        // a longer gap between the NotBefore times of shown certificates may mean that none could be obtained
)

// Expiry records the ends of shown credentials, and the time since which certificates can be obtained. Safe for
// concurrent use.
type Expiry struct {
	seed maphash.Seed

	mu          sync.Mutex
	newest      map[spiffeid.ID]time.Time // identity -> latest end of its shown credentials; removed grace+spread after that end
	issuing     time.Time                 // the time since which certificates can be obtained without a gap; zero: they cannot
	byShown     bool                      // Ended uses began and seriesBegan instead of issuing
	began       time.Time                 // the latest NotBefore of a shown certificate
	seriesBegan time.Time                 // when the first certificate after the last gap (longer than pause) was shown
}

// New returns an Expiry that knows no credential.
func New() *Expiry {
	return &Expiry{seed: maphash.MakeSeed(), newest: map[spiffeid.ID]time.Time{}}
}

// noteCredential records a verified credential.
func (e *Expiry) noteCredential(who attest.Caller, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if who.NotAfter.After(e.newest[who.ID]) {
		e.newest[who.ID] = who.NotAfter
	}
	if who.NotBefore.After(e.began) && !who.NotBefore.After(now) {
		if who.NotBefore.Sub(e.began) > pause {
			e.seriesBegan = now
		}
		e.began = who.NotBefore
	}
}

// noteIssuing records whether certificates can be obtained at present, and removes old entries. Run calls noteIssuing
// every 10 s.
func (e *Expiry) noteIssuing(now time.Time, can bool) {
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

// Ended reports whether a caller's credential has expired and no unexpired credential of the caller's identity was
// shown. The result named issuing is the time since which newer credentials could be obtained without a gap. It is zero
// if the credential has not expired, or if this process does not know that newer credentials can be obtained. If the
// credential has expired but a newer one was shown, ended is false and issuing may be set. A credential with a zero
// NotAfter never expires.
func (e *Expiry) Ended(who attest.Caller, now time.Time) (ended bool, issuing time.Time) {
	if who.NotAfter.IsZero() || !now.After(who.NotAfter) {
		return false, time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byShown {
		if e.began.Sub(who.NotAfter) >= e.wait(who) {
			issuing = e.seriesBegan
		}
		return !e.newest[who.ID].After(now), issuing
	}
	return !e.newest[who.ID].After(now), e.issuing
}

// wait returns the minimum time that a stream stays after its credential expired. It is grace plus a part of spread,
// which depends on the credential.
func (e *Expiry) wait(who attest.Caller) time.Duration {
	return grace + time.Duration(maphash.String(e.seed, who.ID.String()+who.Credential()+who.Serial)%uint64(spread))
}

// Refused returns the reason to stop serving a caller, or nil if the caller is still served. The caller is refused if
// Ended reports true, and newer credentials could be obtained without a gap for 5 to 15 min after the end of the
// caller's credential. The exact time within this range depends on the credential.
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

// Noting wraps an authenticator. The wrapper returns the same callers and errors. It also records the credential of
// each verified caller in e.
func (e *Expiry) Noting(by attest.Authenticator) attest.Authenticator { return noting{by, e} }

type noting struct {
	attest.Authenticator
	expiry *Expiry
}

// Authenticate implements attest.Authenticator.
func (n noting) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := n.Authenticator.Authenticate(ctx)
	if err == nil {
		n.expiry.noteCredential(who, time.Now())
	}
	return who, err
}

// Run calls issuing and recheck every 10 s until ctx ends, and returns nil then. issuing reports whether certificates
// can be obtained at present. If issuing is nil, Ended infers from the certificates that callers show whether
// certificates can be obtained. recheck must call Refused for each stream's caller and end refused streams.
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
			e.noteIssuing(now, issuing())
			recheck()
		case <-ctx.Done():
			return nil
		}
	}
}
