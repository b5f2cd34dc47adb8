package serve

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/obs"
)

// Renewals bounds renewal by a certificate alone, so that one that was stolen cannot be renewed for ever (issue 12, item 4). Zero: there is
// no bound.
type Renewals struct {
	// Alone is for how long after its last token an identity may renew by certificate; 0: without end.
	Alone time.Duration
	// Machine says whether an identity is a machine's, which has no token after its first: as long as it is configured. nil: none is.
	Machine func(id spiffeid.ID) bool
	// Machines is as Alone, for machines, whatever Alone says.
	Machines time.Duration
	// Tokens are asked where a token comes beside a certificate that is too old; nil: it does not count.
	Tokens attest.Authenticator
	Ending func() // a machine renewed that may do so for less than 14 days yet; nil: nobody is told
}

// ending is how long before the end of a machine's renewals operators are told.
const ending = 14 * 24 * time.Hour

// proven is when the caller's identity was proven by a token last: now, or what the certificate says that was shown. An error: that is too
// long ago.
func (s *Server) proven(ctx context.Context, c attest.Caller) (time.Time, error) {
	now := s.cfg.Now()
	if c.By != attest.ByCertificate {
		return now, nil
	}
	at, cert := time.Time{}, peerCertificate(ctx)
	if cert != nil && s.cfg.Registrar == nil { // certificates of another CA do not say
		at = issue.Proven(cert)
	}
	p := s.cfg.Renewals
	most, machine := p.Alone, p.Machine != nil && p.Machine(c.ID)
	if machine {
		most = p.Machines
	}
	left := most - now.Sub(at)
	if most == 0 || left >= 0 {
		if machine && most > 0 && left < ending && p.Ending != nil {
			p.Ending()
			s.clients.Warn("a machine needs a new token soon: without one its certificate is not renewed any more", c.ID.String(),
				obs.KeyIdentity, c.ID.String(), "until", now.Add(left).UTC().Format(time.RFC3339))
		}
		return at, nil
	}
	if p.Tokens != nil && hasToken(ctx) {
		who, err := p.Tokens.Authenticate(ctx)
		if err == nil && who.ID == c.ID {
			return now, nil
		}
	}
	if at.IsZero() {
		return at, status.Errorf(codes.Unauthenticated, "show a token: the certificate of %s does not say when it has shown its last", c.ID)
	}
	return at, status.Errorf(codes.Unauthenticated, "show a token: %s showed its last at %s, and renews by certificate alone for %s", c.ID, at.UTC().Format(time.RFC3339), most)
}

// alone is for how long at most a renewal by certificate is asked for, so that one that was stolen becomes none of 90 days: what the
// policy gives by default, or what the certificate that was shown has left. Machines have no tokens, and are not bounded so.
func (s *Server) alone(c attest.Caller, left, ttl time.Duration) time.Duration {
	if machine := s.cfg.Renewals.Machine; machine != nil && machine(c.ID) {
		return ttl
	}
	return min(ttl, max(s.cfg.Policy.Default(), left))
}

// outliving is for how long a renewal is asked for, so that it does not end before the certificate that was shown, which has left to live:
// while that can be revoked by its serial number, what renewed it is in the journal, and what renewed this, so that all of it goes along.
func outliving(left, ttl time.Duration, p issue.Policy) (time.Duration, issue.Policy) {
	if left > 0 && p.Shortest(ttl) < left {
		ttl, p.Jitter = left+time.Second, -1
	}
	return ttl, p
}
