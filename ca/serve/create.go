package serve

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/obs"
)

// CreateCertificate implements istio.v1.auth.IstioCertificateService for callers in this process. It authenticates the
// caller by the metadata and the peer of ctx, and blocks until the certificate is signed and recorded. With
// Config.Registrar, it blocks until the Registrar returns. The response's CertChain has one PEM element for each
// certificate of the chain, the leaf first, and then one element with all roots. Register adds the same method to a
// gRPC server, where the caller is authenticated before the request is read.
//
// Errors are gRPC statuses. A gRPC status of the Authenticator is returned unchanged. Unauthenticated: the credential
// is missing, not accepted, names no identity, or is too old (Config.Renewals). PermissionDenied: the caller is
// revoked, the Registrar refuses, or the request sets metadata.ImpersonatedIdentity. InvalidArgument: the CSR, the
// lifetime or metadata.CertSigner is not valid. ResourceExhausted: the queue has no room or no time, or the Registrar
// returned ErrBusy. Unavailable: the credential cannot be verified, or nothing can be signed or recorded now. Internal:
// signing failed for another reason. Canceled: ctx was cancelled. DeadlineExceeded: the deadline of ctx passed, or
// Limits.MaxWait passed before a certificate could be signed again after the Journal's ErrStale.
func (s *Server) CreateCertificate(ctx context.Context,
	r *securityv1.IstioCertificateRequest) (*securityv1.IstioCertificateResponse, error) {
	return s.certificate(ctx, func() (*securityv1.IstioCertificateRequest, error) { return r, nil })
}

// certificate answers one request for a certificate. It authenticates the caller before it calls the function read,
// which returns the request. The last element of the response's CertChain is the whole root bundle, as Istio's agent
// expects.
func (s *Server) certificate(ctx context.Context, read requested) (*securityv1.IstioCertificateResponse, error) {
	began := s.cfg.Now()
	s.cfg.Hooks.Request()
	caller, chain, err := s.create(ctx, read)
	if err != nil {
		s.refused(ctx, "certificate request refused", caller, err)
		return nil, err
	}
	s.cfg.Hooks.Issued(s.cfg.Now().Sub(began))
	return &securityv1.IstioCertificateResponse{CertChain: chain}, nil
}

// maxSigner is the maximum length of a signer's name in bytes. Kubernetes has the same limit.
const maxSigner = 571

// requested reads and decodes a request.
type requested func() (*securityv1.IstioCertificateRequest, error)

// create handles a request, and returns the elements of the response's CertChain. If the caller was authenticated, the
// result caller is set even if create fails.
func (s *Server) create(ctx context.Context, read requested) (caller attest.Caller, chain []string, err error) {
	if err := s.admission.refuseEarly(ctx, hasToken(ctx), s.cfg.Limits.MaxWait); err != nil {
		s.cfg.Hooks.Turned(status.Code(err).String())
		return caller, nil, err
	}
	if caller, err = s.caller(ctx); err != nil {
		return caller, nil, err
	}
	if caller.Proven, err = s.proven(ctx, caller); err != nil {
		s.countUnauthenticated(ctx)
		return caller, nil, err
	}
	r, err := read()
	if err != nil {
		return caller, nil, err
	}
	if err := s.plausible(r); err != nil {
		return caller, nil, err
	}
	signer := r.GetMetadata().GetFields()["CertSigner"].GetStringValue()
	if len(signer) > maxSigner {
		s.cfg.Hooks.BadCSR()
		return caller, nil, status.Errorf(codes.InvalidArgument, "metadata.CertSigner has %d bytes, want at most %d", len(signer), maxSigner)
	}
	// Keep only the needed fields, so that the rest of the message can be freed while the request waits in the queue.
	r = &securityv1.IstioCertificateRequest{Csr: r.GetCsr(), ValidityDuration: r.GetValidityDuration()}
	pass, err := s.admit(ctx, caller, len(r.GetCsr()))
	if err != nil {
		s.cfg.Hooks.Turned(status.Code(err).String())
		return caller, nil, err
	}
	if s.cfg.Registrar != nil {
		chain, err = s.register(ctx, pass, r, signer, caller)
		return caller, chain, err
	}
	current, issued, err := s.issue(ctx, pass, r, caller)
	if err != nil {
		return caller, nil, err
	}
	return caller, issued.Encode(current.Bundle), nil
}

// refused logs a failed request. It samples the log lines by status code. Cancelled requests are not logged.
func (s *Server) refused(ctx context.Context, message string, c attest.Caller, err error) {
	code := status.Code(err)
	if code == codes.Canceled {
		return
	}
	identity := ""
	if !c.ID.IsZero() {
		identity = c.ID.String()
	}
	s.clients.Warn(message, code.String(), obs.KeyPeer, peerAddress(ctx), obs.KeyIdentity, identity, obs.KeyError, err)
}

// authenticate calls an Authenticator. It bounds the number of simultaneous calls. Certificates and tokens have
// separate bounds.
func (s *Server) authenticate(ctx context.Context, by attest.Authenticator) (attest.Caller, error) {
	checks := s.checks[0]
	if hasToken(ctx) {
		checks = s.checks[1]
	}
	if err := checks.Acquire(ctx, 1); err != nil {
		return attest.Caller{}, err
	}
	defer checks.Release(1) // also after a panic, which ends only this call
	return by.Authenticate(ctx)
}

// caller authenticates the caller and refuses revoked callers. For a revoked caller, it returns the caller together
// with the error.
func (s *Server) caller(ctx context.Context) (attest.Caller, error) {
	caller, err := s.authenticate(ctx, s.cfg.Authenticator)
	if err != nil {
		s.countUnauthenticated(ctx)
		return attest.Caller{}, unauthenticated(err)
	}
	if caller.ID.IsZero() {
		s.cfg.Hooks.BadIdentity()
		return attest.Caller{}, status.Error(codes.Unauthenticated, "the credential names no identity")
	}
	if s.cfg.Revocations == nil {
		return caller, nil
	}
	if s.cfg.Revocations.RevokedIdentity(caller.ID) {
		s.cfg.Hooks.BadIdentity()
		return caller, status.Errorf(codes.PermissionDenied, "%s is revoked", caller.ID)
	}
	if cert := peerCertificate(ctx); cert != nil && caller.By == attest.ByCertificate {
		if serial := Serial(cert); s.cfg.Revocations.RevokedSerial(serial) {
			s.cfg.Hooks.BadIdentity()
			return caller, status.Errorf(codes.PermissionDenied, "certificate %s of %s is revoked", serial, caller.ID)
		}
	}
	return caller, nil
}

// countUnauthenticated counts a request without an accepted credential. It does not count a request whose client has
// gone or whose time has ended, because nothing is known of its credential.
func (s *Server) countUnauthenticated(ctx context.Context) {
	if ctx.Err() == nil {
		s.cfg.Hooks.Unauthenticated()
	}
}

// hasToken reports whether the request has authorization metadata. It does not verify the metadata.
func hasToken(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return len(md.Get("authorization")) > 0
}

func unauthenticated(err error) error {
	switch {
	case errors.Is(err, attest.ErrNone):
		return status.Error(codes.Unauthenticated,
			"no credential: send \"authorization: Bearer TOKEN\", or connect with a certificate of this mesh")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return contextual(err)
	case errors.Is(err, attest.ErrUnavailable): // the control plane cannot verify the credential now
		return status.Error(codes.Unavailable, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unauthenticated, err.Error())
}

// plausible refuses obviously invalid requests before they queue, without cryptography.
func (s *Server) plausible(r *securityv1.IstioCertificateRequest) error {
	if r.GetMetadata().GetFields()["ImpersonatedIdentity"].GetStringValue() != "" {
		s.cfg.Hooks.BadIdentity()
		return status.Error(codes.PermissionDenied, "metadata.ImpersonatedIdentity is set: a certificate names the caller only")
	}
	bad := ""
	switch n := len(r.GetCsr()); {
	case n == 0:
		bad = "csr is empty"
	case n > issue.MaxCSR:
		s.cfg.Hooks.BadCSR()
		return status.Errorf(codes.InvalidArgument, "csr has %d bytes, want at most %d", n, issue.MaxCSR)
	case r.GetValidityDuration() < 0:
		bad = "validity_duration is negative"
	case r.GetValidityDuration() > int64(maxDuration/time.Second):
		bad = "validity_duration is too large"
	}
	if bad == "" {
		return nil
	}
	s.cfg.Hooks.BadCSR()
	return status.Error(codes.InvalidArgument, bad)
}

const maxDuration = time.Duration(1<<63 - 1)

func (s *Server) admit(ctx context.Context, c attest.Caller, bytes int) (*pass, error) {
	first := c.By != attest.ByCertificate
	began := s.cfg.Now()
	pass, err := s.admission.enter(ctx, holder{c.ID.String(), c.Credential()}, first, bytes, s.cfg.Limits.MaxWait)
	if err != nil {
		return nil, err
	}
	s.cfg.Hooks.Waited(first, s.cfg.Now().Sub(began))
	return pass, nil
}

// issue signs a certificate in the signing slot that p occupies, and returns the certificate once it is recorded.
func (s *Server) issue(ctx context.Context, p *pass, r *securityv1.IstioCertificateRequest,
	c attest.Caller) (*Current, *issue.Issued, error) {
	shownEnds, renews := s.shownEnd(ctx, c)
	away := renews && s.cfg.Fallback.Away()
	asked, by := r, c
	if away {
		asked, by = s.forFallback(r, c)
	}
	current, issued, err := s.slot(p, asked, by)
	if err != nil {
		return nil, nil, err
	}
	defer p.recorded()
	if away {
		return s.recordFallback(ctx, c, shownEnds, current, issued, nil)
	}
	return s.record(ctx, r, c, current, issued)
}

// slot signs a certificate, and frees the signing slot that p occupies, also after an error.
func (s *Server) slot(p *pass, r *securityv1.IstioCertificateRequest, c attest.Caller) (_ *Current, issued *issue.Issued, err error) {
	defer func() { p.leave(issued != nil) }()
	return s.sign(r, c)
}

func (s *Server) sign(r *securityv1.IstioCertificateRequest, c attest.Caller) (*Current, *issue.Issued, error) {
	current, err := s.cfg.Authorities.Current()
	if err != nil {
		s.cfg.Hooks.SignFailed()
		return nil, nil, status.Errorf(codes.Unavailable, "this replica cannot sign: %v", err)
	}
	ttl, policy := time.Duration(r.GetValidityDuration())*time.Second, s.cfg.Policy
	if c.By == attest.ByCertificate {
		left := c.NotAfter.Sub(s.cfg.Now())
		ttl, policy = extendToShown(left, s.boundRenewal(c, left, ttl), policy)
	}
	want := issue.Request{CSR: []byte(r.GetCsr()), Identity: c.ID, Aliases: s.cfg.Aliases(), TTL: ttl, Proven: c.Proven, Origin: c.Origin()}
	if slices.Contains(s.cfg.ControlPlane, c.ID) && c.By == attest.ByToken && c.ProvesToBeOf(s.cfg.Cluster) {
		want.Names = s.cfg.Names
	}
	issued, err := issue.Issue(current.Authority, want, policy, s.cfg.Now(), s.cfg.Random)
	if err == nil {
		return current, issued, nil
	}
	if errors.Is(err, issue.ErrInvalid) {
		s.cfg.Hooks.BadCSR()
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.cfg.Hooks.SignFailed()
	if errors.Is(err, issue.ErrAuthority) {
		return nil, nil, status.Errorf(codes.Unavailable, "this replica cannot sign: %v", err)
	}
	return nil, nil, status.Errorf(codes.Internal, "sign for %s: %v", c.ID, err)
}

// signings is the maximum number of attempts to sign one request and record the certificate in the Journal. An attempt
// fails with ErrStale if a root is published, or the signer is replaced, while the certificate is being journalled.
const signings = 4

// record returns the certificate once the Journal has stored it. After ErrStale, record signs again outside of the
// queue, since the caller has waited already. After an error other than ErrStale and ErrRevoked, record signs a renewal
// again, and records it in the FallbackJournal, if there is one.
func (s *Server) record(ctx context.Context, r *securityv1.IstioCertificateRequest, c attest.Caller,
	current *Current, issued *issue.Issued) (*Current, *issue.Issued, error) {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Limits.MaxWait)
	defer cancel()
	shownEnds, renews := s.shownEnd(ctx, c)
	for n := 1; ; n++ {
		e := entry(current, issued, c, peerAddress(ctx))
		err := s.cfg.Journal.Append(bounded, e)
		switch {
		case err == nil:
			s.audit(ctx, e)
			return current, issued, nil
		case errors.Is(err, ErrRevoked):
			s.cfg.Hooks.BadIdentity()
			return nil, nil, status.Errorf(codes.PermissionDenied, "%s is revoked", c.ID)
		case !errors.Is(err, ErrStale) && renews && ctx.Err() == nil:
			asked, by := s.forFallback(r, c)
			current, issued, failed := s.signAgain(ctx, asked, by)
			if failed != nil {
				return nil, nil, failed
			}
			return s.recordFallback(ctx, c, shownEnds, current, issued, err)
		case !errors.Is(err, ErrStale) || n == signings:
			s.cfg.Hooks.SignFailed()
			if ctx.Err() != nil {
				return nil, nil, contextual(ctx.Err())
			}
			return nil, nil, status.Errorf(codes.Unavailable, "the certificate could not be recorded, so it is not given out: %v", err)
		}
		if current, issued, err = s.signAgain(bounded, r, c); err != nil {
			return nil, nil, err
		}
	}
}

// signAgain signs outside of the queue. At most Limits.Signing calls sign at once. Further calls wait until one of them
// ends or ctx ends.
func (s *Server) signAgain(ctx context.Context, r *securityv1.IstioCertificateRequest, c attest.Caller) (*Current, *issue.Issued, error) {
	if err := s.again.Acquire(ctx, 1); err != nil {
		s.cfg.Hooks.SignFailed()
		return nil, nil, contextual(err)
	}
	defer s.again.Release(1)
	return s.sign(r, c)
}

func entry(cur *Current, is *issue.Issued, c attest.Caller, peer string) Entry {
	return Entry{
		Serial: Serial(is.Leaf), Identity: c.ID, Epoch: is.Epoch, Publication: cur.Publication,
		NotBefore: is.Leaf.NotBefore, NotAfter: is.Leaf.NotAfter, By: c.By, Pod: c.Pod, Credential: c.Credential(), Peer: peer,
		Previous: c.Serial, Names: is.Leaf.DNSNames,
	}
}

// Serial returns a certificate's serial number in lower-case hexadecimal without leading zeros. Entry, Holder and
// Revocations use this form.
func Serial(c *x509.Certificate) string { return issue.SerialString(c.SerialNumber) }

func (s *Server) audit(ctx context.Context, e Entry) {
	s.cfg.Audit.LogAttrs(ctx, slog.LevelInfo, "certificate issued",
		slog.String("identity", e.Identity.String()), slog.String("serial", e.Serial), slog.Time("notAfter", e.NotAfter),
		slog.Uint64("epoch", e.Epoch), slog.Uint64("publication", e.Publication),
		slog.String("by", e.By), slog.String("pod", e.Pod), slog.String("peer", e.Peer), slog.String("previous", e.Previous),
		slog.Any("names", e.Names))
}

func peerAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// peerCertificate returns the client's leaf certificate as verified in the TLS handshake, or nil.
func peerCertificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}
