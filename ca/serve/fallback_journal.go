package serve

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
)

// FallbackJournal records renewals for a bounded time while the Journal cannot. Many goroutines call it.
type FallbackJournal interface {
	// Away reports whether the Journal is known to be away, so that it is not tried first.
	Away() bool
	// Longest is the longest lifetime of a certificate that may be recorded.
	Longest() time.Duration
	// Spend returns nil once the entry is durable. e.Previous is the serial number of the shown and verified
	// certificate, shownEnds its end. ErrRevoked is as in Journal. After any error the certificate must not be handed
	// out.
	Spend(e Entry, shownEnds time.Time) error
}

// shownEnd returns the end of the certificate that a renewal shows, and whether the request is a renewal: the handshake
// verified the connection's certificate, and it proved the caller's identity. Other requests wait for the Journal.
func (s *Server) shownEnd(ctx context.Context, c attest.Caller) (shownEnds time.Time, yes bool) {
	cert := peerCertificate(ctx)
	if s.cfg.Fallback == nil || cert == nil || c.By != attest.ByCertificate || c.Serial != Serial(cert) {
		return time.Time{}, false
	}
	return cert.NotAfter, true
}

// recordFallback signs a renewal again, for a shorter time, and records it in the FallbackJournal. why is the Journal's
// error, or nil if it was not tried.
func (s *Server) recordFallback(ctx context.Context, r *securityv1.IstioCertificateRequest,
	c attest.Caller, shownEnds time.Time, why error) (*Current, *issue.Issued, error) {
	ttl := time.Duration(r.GetValidityDuration()) * time.Second
	if ttl == 0 {
		ttl = s.cfg.Policy.DefaultTTL
	}
	if longest := s.cfg.Fallback.Longest(); ttl == 0 || ttl > longest {
		ttl = longest
	}
	c.NotAfter = time.Time{} // a renewal is not extended beyond the shown certificate here
	current, issued, err := s.sign(&securityv1.IstioCertificateRequest{Csr: r.GetCsr(), ValidityDuration: int64(ttl / time.Second)}, c)
	if err != nil {
		return nil, nil, err
	}
	e := entry(current, issued, c, peerAddress(ctx))
	err = s.cfg.Fallback.Spend(e, shownEnds)
	switch {
	case err == nil:
		s.audit(ctx, e)
		return current, issued, nil
	case errors.Is(err, ErrRevoked):
		s.cfg.Hooks.BadIdentity()
		return nil, nil, status.Errorf(codes.PermissionDenied, "%s is revoked", c.ID)
	}
	s.cfg.Hooks.SignFailed()
	return nil, nil, status.Errorf(codes.Unavailable,
		"the certificate could not be recorded, so it is not given out: %v", errors.Join(why, err))
}
