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

// Renewals bounds the time in which an identity may renew by certificate without a new token. So a stolen certificate
// cannot be renewed for ever. The zero value sets no bound.
type Renewals struct {
	// Alone bounds the time between an identity's last token and a renewal by certificate; 0: unbounded. With a
	// Registrar the time of the last token is unknown, so every renewal needs a token if its bound (Alone or Machines)
	// is not 0.
	Alone time.Duration
	// Machine reports whether an identity belongs to a configured machine (outside of Kubernetes). A machine has a
	// token only for its first certificate. Many goroutines call Machine at once. nil: there are no machines.
	Machine func(id spiffeid.ID) bool
	// Machines is the bound for machines, in place of Alone; 0: unbounded.
	Machines time.Duration
	// Tokens authenticates the token that a caller sends with a renewal after the bound has passed. If the token names
	// the caller's identity, the renewal is allowed. If Tokens is nil, these tokens are ignored.
	Tokens attest.Authenticator
	// Ending is called for each renewal by a machine in the last 14 days before the machine's bound passes. Many
	// goroutines call Ending at once. It may be nil.
	Ending func()
}

// ending is the length of the period before a machine's bound. Renewals in this period are logged as a warning.
const ending = 14 * 24 * time.Hour

// proven returns the time at which a token last proved the caller's identity. For a caller with a token, this is the
// present time. For a renewal it is issue.Proven of the shown certificate, or zero with a Registrar, because the time
// is unknown. Unauthenticated: the bound in Renewals has passed or cannot be checked, and the request has no valid
// token of the caller's identity. Unavailable: the token cannot be verified now. Canceled and DeadlineExceeded: ctx
// ended.
func (s *Server) proven(ctx context.Context, c attest.Caller) (time.Time, error) {
	now := s.cfg.Now()
	if c.By != attest.ByCertificate {
		return now, nil
	}
	at, cert := time.Time{}, peerCertificate(ctx)
	if cert != nil && s.cfg.Registrar == nil { // certificates of another CA do not contain the time
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
			s.clients.Warn("a machine needs a new token soon: without one its renewals will be refused", c.ID.String(),
				obs.KeyIdentity, c.ID.String(), "until", now.Add(left).UTC().Format(time.RFC3339))
		}
		return at, nil
	}
	if p.Tokens != nil && hasToken(ctx) {
		who, err := s.authenticate(ctx, p.Tokens)
		if err == nil && who.ID == c.ID {
			return now, nil
		}
		if err != nil {
			if err = unauthenticated(err); status.Code(err) != codes.Unauthenticated {
				return at, err
			}
		}
	}
	if at.IsZero() {
		return at, status.Errorf(codes.Unauthenticated, "show a token: the time at which %s last showed a token is unknown", c.ID)
	}
	return at, status.Errorf(codes.Unauthenticated, "show a token: %s showed its last token at %s, and may renew without one for %s",
		c.ID, at.UTC().Format(time.RFC3339), most)
}

// boundRenewal bounds the requested lifetime ttl of a renewal by certificate, so that a stolen short-lived certificate
// cannot be renewed for 90 days. The argument left is the remaining lifetime of the shown certificate. The bound is the
// longer of left and the policy's default lifetime. Machines have no bound, since they have no tokens.
func (s *Server) boundRenewal(c attest.Caller, left, ttl time.Duration) time.Duration {
	if machine := s.cfg.Renewals.Machine; machine != nil && machine(c.ID) {
		return ttl
	}
	return min(ttl, max(s.cfg.Policy.Default(), left))
}

// extendToShown returns a lifetime and a policy with which a renewal expires after the shown certificate. The argument
// left is the shown certificate's remaining lifetime. The journal drops expired certificates. Until the shown
// certificate expires, the journal therefore contains the renewal too. So a revocation of the shown certificate by
// serial number also revokes the renewal.
func extendToShown(left, ttl time.Duration, p issue.Policy) (time.Duration, issue.Policy) {
	if left > 0 && p.Shortest(ttl) < left {
		ttl, p.Jitter = left+time.Second, -1
	}
	return ttl, p
}
