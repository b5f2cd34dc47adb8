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

// Registrar obtains certificates from another CA. With a Registrar the server is a registration authority: it
// authenticates callers, and the other CA signs. At most Limits.Signing goroutines call Register at once. The argument
// ctx ends after Limits.MaxWait at the latest. Register must return within seconds after the end of ctx. Register
// returns an error that matches issue.ErrInvalid if the request is at fault. The server's caller then receives
// InvalidArgument. ErrRefused and ErrBusy lead to the codes in their comments. Any other error means that the CA cannot
// sign now, and the caller receives Unavailable.
type Registrar interface {
	Register(ctx context.Context, r Registration) (Registered, error)
}

// Registration is one request to the other CA. Register may keep it.
type Registration struct {
	CSR      []byte // PEM, unverified
	Identity spiffeid.ID
	// Signer is the CA's name in the caller's request (metadata.CertSigner), unverified, at most 571 bytes. It is empty
	// if the caller names no CA.
	Signer string
	TTL    time.Duration // requested or default lifetime, at most the policy's MaxTTL
}

// Registered is a certificate that another CA issued and the Registrar verified. Issued must not be nil, and
// Issued.Epoch must be 0.
type Registered struct {
	*issue.Issued
	Bundle []*x509.Certificate // all roots that workloads must trust
	Signer string              // name of the CA that signed, for the log
}

// Errors of a Registrar, for errors.Is. The server's caller receives the gRPC code in the comment.
var (
	ErrRefused = errors.New("the signer has refused the request") // PermissionDenied
	ErrBusy    = errors.New("too many requests are under way")    // ResourceExhausted
)

// register obtains a certificate from the Registrar, and then frees the signing slot of p. It logs the certificate
// without journalling it, since only the other CA can revoke it.
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
		return nil, status.Errorf(codes.Unavailable, "the other CA issued no certificate: %v", err)
	}
	s.cfg.Audit.LogAttrs(ctx, slog.LevelInfo, "certificate issued", slog.String("identity", c.ID.String()), slog.String("serial", got.Serial),
		slog.Time("notAfter", got.Leaf.NotAfter), slog.String("signer", got.Signer), slog.String("by", c.By), slog.String("pod", c.Pod),
		slog.String("peer", peerAddress(ctx)), slog.String("previous", c.Serial))
	return got.Encode(got.Bundle), nil
}
