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

// Spare records renewals for a bounded time while the Journal cannot (issue 12, item 16). It is called by many goroutines.
type Spare interface {
	// Away says whether the Journal is known to be away, so that it need not be tried.
	Away() bool
	// Longest is for how long a certificate may live that is recorded here.
	Longest() time.Duration
	// Spend returns nil once the entry is durable. e.Previous is the certificate that was shown, and verified; shownEnds is its end. ErrRevoked
	// as of Journal; any other error says why the certificate must not be handed out.
	Spend(e Entry, shownEnds time.Time) error
}

// renews says whether a request is a renewal: the caller proved who they are by the unexpired certificate of the connection, and the
// handshake verified it. Anything else waits for the Journal.
func (s *Server) renews(ctx context.Context, c attest.Caller) (shownEnds time.Time, yes bool) {
	cert := peerCertificate(ctx)
	if s.cfg.Spare == nil || cert == nil || c.By != attest.ByCertificate || c.Serial != Serial(cert) {
		return time.Time{}, false
	}
	return cert.NotAfter, true
}

// spared signs a renewal again, for a shorter time, and records it in the spare journal. why is the Journal's error; nil: it was not asked.
func (s *Server) spared(ctx context.Context, r *securityv1.IstioCertificateRequest, c attest.Caller, shownEnds time.Time, why error) (*Current, *issue.Issued, error) {
	ttl := time.Duration(r.GetValidityDuration()) * time.Second
	if ttl == 0 {
		ttl = s.cfg.Policy.DefaultTTL
	}
	if longest := s.cfg.Spare.Longest(); ttl == 0 || ttl > longest {
		ttl = longest
	}
	c.NotAfter = time.Time{} // what would end before the certificate that was shown is not spent on
	current, issued, err := s.sign(&securityv1.IstioCertificateRequest{Csr: r.GetCsr(), ValidityDuration: int64(ttl / time.Second)}, c)
	if err != nil {
		return nil, nil, err
	}
	e := entry(current, issued, c, peerAddress(ctx))
	err = s.cfg.Spare.Spend(e, shownEnds)
	switch {
	case err == nil:
		s.audit(ctx, e)
		return current, issued, nil
	case errors.Is(err, ErrRevoked):
		s.cfg.Hooks.BadIdentity()
		return nil, nil, status.Errorf(codes.PermissionDenied, "%s is revoked", c.ID)
	}
	s.cfg.Hooks.SignFailed()
	return nil, nil, status.Errorf(codes.Unavailable, "the certificate could not be recorded, so it is not given out: %v", errors.Join(why, err))
}
