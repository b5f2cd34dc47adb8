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

// FallbackJournal records renewals while the Journal is unavailable. Many goroutines call its methods at once.
type FallbackJournal interface {
	// Away reports whether the Journal is known to be unavailable. If Away returns true, the server records a renewal
	// without trying the Journal first.
	Away() bool
	// Longest returns the maximum remaining lifetime of a new certificate that Spend accepts. It is at least 1 s.
	Longest() time.Duration
	// Spend records the signed renewal e, and returns nil once e is durable. The argument shownEnds is the NotAfter of
	// the certificate that authenticated the request, and e.Previous is its serial number. Spend returns ErrRevoked if
	// the identity or the certificate e.Previous is revoked. The client then receives PermissionDenied. After any other
	// error it receives Unavailable. After an error the server does not return the new certificate.
	Spend(e Entry, shownEnds time.Time) error
}

// shownEnd returns the NotAfter of the shown certificate, which is the client certificate of the connection. The result
// yes is true if the FallbackJournal may record the request. The request must be a renewal, and the shown certificate
// must have authenticated the caller. Other requests need the Journal.
func (s *Server) shownEnd(ctx context.Context, c attest.Caller) (shownEnds time.Time, yes bool) {
	cert := peerCertificate(ctx)
	if s.cfg.Fallback == nil || cert == nil || c.By != attest.ByCertificate || c.Serial != Serial(cert) {
		return time.Time{}, false
	}
	return cert.NotAfter, true
}

// forFallback changes a renewal so that the FallbackJournal may record it. The returned request asks for the lifetime
// FallbackJournal.Longest at most. The returned caller has no NotAfter. So the function sign does not extend the
// lifetime to the end of the shown certificate.
func (s *Server) forFallback(r *securityv1.IstioCertificateRequest, c attest.Caller) (*securityv1.IstioCertificateRequest, attest.Caller) {
	ttl := time.Duration(r.GetValidityDuration()) * time.Second
	if ttl == 0 {
		ttl = s.cfg.Policy.DefaultTTL
	}
	if longest := s.cfg.Fallback.Longest(); ttl == 0 || ttl > longest {
		ttl = longest
	}
	c.NotAfter = time.Time{}
	return &securityv1.IstioCertificateRequest{Csr: r.GetCsr(), ValidityDuration: int64(ttl / time.Second)}, c
}

// recordFallback records a signed renewal in the FallbackJournal. The renewal was changed by forFallback before
// signing. The argument cause is the error of the Journal, or nil if the Journal was not tried.
func (s *Server) recordFallback(ctx context.Context, c attest.Caller, shownEnds time.Time,
	current *Current, issued *issue.Issued, cause error) (*Current, *issue.Issued, error) {
	e := entry(current, issued, c, peerAddress(ctx))
	err := s.cfg.Fallback.Spend(e, shownEnds)
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
		"the certificate could not be recorded, so it is not given out: %v", errors.Join(cause, err))
}
