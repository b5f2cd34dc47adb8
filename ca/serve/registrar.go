package serve

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
)

// Registrar has another CA sign. The server is a registration authority then: it authenticates callers, and the other
// CA holds the key. Register must return within seconds of the end of ctx; Limits.Signing goroutines call it. Errors
// match issue.ErrInvalid (the request is at fault), ErrRefused or ErrBusy; any other error means that the CA cannot
// sign now.
type Registrar interface {
	Register(ctx context.Context, r Registration) (Registered, error)
}

// Registration is one request to the other CA.
type Registration struct {
	CSR      []byte // PEM
	Identity spiffeid.ID
	// Signer names the CA that the caller asks for (metadata.CertSigner of the request), unverified. Empty: the caller
	// names none.
	Signer string
	TTL    time.Duration // within Policy
}

// Registered is a verified certificate.
type Registered struct {
	*issue.Issued
	Bundle []*x509.Certificate // every root that peers must trust
	Signer string              // name of the CA that signed, for the log
}

// Reasons of a Registrar to refuse, for errors.Is.
var (
	ErrRefused = errors.New("the signer has refused the request") // PermissionDenied
	ErrBusy    = errors.New("too many requests are under way")    // ResourceExhausted
)

// register has another CA sign while it holds the pass's slot. Certificates are logged, not journalled; revocation is
// the other CA's.
func (s *Server) register(ctx context.Context, p *pass, r *securityv1.IstioCertificateRequest,
	signer string, c attest.Caller) ([]string, error) {
	defer p.leave(false)
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Limits.MaxWait)
	defer cancel()
	ttl := s.cfg.Policy.Longest(time.Duration(r.GetValidityDuration()) * time.Second)
	got, err := s.cfg.Registrar.Register(bounded, Registration{CSR: []byte(r.GetCsr()), Identity: c.ID, Signer: signer, TTL: ttl})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, contextual(ctx.Err())
	case errors.Is(err, issue.ErrInvalid):
		s.cfg.Hooks.BadCSR()
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, ErrBusy):
		s.cfg.Hooks.Turned(codes.ResourceExhausted.String())
		return nil, status.Errorf(codes.ResourceExhausted, "%v: try again with back-off", err)
	case errors.Is(err, ErrRefused):
		s.cfg.Hooks.SignFailed()
		return nil, status.Error(codes.PermissionDenied, err.Error())
	default:
		s.cfg.Hooks.SignFailed()
		return nil, status.Errorf(codes.Unavailable, "no certificate could be had: %v", err)
	}
	s.cfg.Audit.LogAttrs(ctx, slog.LevelInfo, "certificate issued", slog.String("identity", c.ID.String()), slog.String("serial", got.Serial),
		slog.Time("notAfter", got.Leaf.NotAfter), slog.String("signer", got.Signer), slog.String("by", c.By), slog.String("pod", c.Pod),
		slog.String("peer", peerAddress(ctx)), slog.String("previous", c.Serial))
	return got.Encode(got.Bundle), nil
}
