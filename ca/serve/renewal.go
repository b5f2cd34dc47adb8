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

// Renewals bounds renewals that show a certificate only, so that a stolen certificate cannot be renewed for ever. The
// zero value sets no bound.
type Renewals struct {
	// Alone bounds the time after its last token in which an identity may renew by certificate; 0: unbounded.
	Alone time.Duration
	// Machine reports whether an identity is a configured machine's, which has no token after its first. nil: none is.
	Machine func(id spiffeid.ID) bool
	// Machines replaces Alone for machines.
	Machines time.Duration
	// Tokens authenticates a token that accompanies a certificate whose bound has passed. nil: such tokens are ignored.
	Tokens attest.Authenticator
	Ending func() // called when a machine renewed with less than 14 days left; may be nil
}

// ending is the remaining time of a machine's renewals at which operators are warned.
const ending = 14 * 24 * time.Hour

// proven returns when a token last proved the caller's identity: now, or the time in the shown certificate; zero:
// unknown. Unauthenticated: the bound has passed, or the certificate does not state the time, and no valid token of the
// same identity came with it.
func (s *Server) proven(ctx context.Context, c attest.Caller) (time.Time, error) {
	now := s.cfg.Now()
	if c.By != attest.ByCertificate {
		return now, nil
	}
	at, cert := time.Time{}, peerCertificate(ctx)
	if cert != nil && s.cfg.Registrar == nil { // certificates of another CA do not carry the time
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
	return at, status.Errorf(codes.Unauthenticated, "show a token: %s showed its last at %s, and renews by certificate alone for %s",
		c.ID, at.UTC().Format(time.RFC3339), most)
}

// boundRenewal bounds the lifetime of a renewal by certificate, so that a stolen short certificate does not become one
// of 90 days. The bound is the policy's default or the remaining lifetime of the shown certificate. Machines have no
// tokens and no bound.
func (s *Server) boundRenewal(c attest.Caller, left, ttl time.Duration) time.Duration {
	if machine := s.cfg.Renewals.Machine; machine != nil && machine(c.ID) {
		return ttl
	}
	return min(ttl, max(s.cfg.Policy.Default(), left))
}

// extendToShown returns a lifetime and policy for a renewal that ends after the shown certificate, which has left to
// live. Then the journal still has all renewals of a certificate while it can be revoked by serial number.
func extendToShown(left, ttl time.Duration, p issue.Policy) (time.Duration, issue.Policy) {
	if left > 0 && p.Shortest(ttl) < left {
		ttl, p.Jitter = left+time.Second, -1
	}
	return ttl, p
}
