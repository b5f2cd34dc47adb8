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

// Registrar has another CA sign: this server is a registration authority then. It knows who calls, and the other CA holds the key. Register answers within
// seconds of the end of the context, and is called by as many goroutines as Limits.Signing. Errors match issue.ErrInvalid (the request's fault), ErrRefused, ErrBusy; any other says
// that the CA cannot sign now.
type Registrar interface {
	Register(ctx context.Context, r Registration) (Registered, error)
}

// Registration is one request.
type Registration struct {
	CSR      []byte // PEM
	Identity spiffeid.ID
	// Signer is which of its CAs the caller asks for (metadata.CertSigner of the request); empty: it does not say. It is the caller's word.
	Signer string
	TTL    time.Duration // within Policy
}

// Registered is a certificate that was checked.
type Registered struct {
	*issue.Issued
	Bundle []*x509.Certificate // every root that peers must trust
	Signer string              // who has signed, for the log
}

// Why a Registrar gives no certificate, for errors.Is.
var (
	ErrRefused = errors.New("the signer has refused the request") // PermissionDenied
	ErrBusy    = errors.New("too many requests are under way")    // ResourceExhausted
)

// register has another CA sign, in the slot of pass. Nothing is journalled: what was signed is in the log, and revoking it is that CA's.
func (s *Server) register(ctx context.Context, p *pass, r *securityv1.IstioCertificateRequest, signer string, c attest.Caller) ([]string, error) {
	defer p.leave(false)
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Limits.MaxWait)
	defer cancel()
	got, err := s.cfg.Registrar.Register(bounded, Registration{CSR: []byte(r.GetCsr()), Identity: c.ID, Signer: signer, TTL: s.cfg.Policy.Longest(time.Duration(r.GetValidityDuration()) * time.Second)})
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
