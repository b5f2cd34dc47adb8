// Package registrar obtains workloads' certificates from Kubernetes signers by CertificateSigningRequests, like istiod
// with EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API. For an authenticated caller it creates a CertificateSigningRequest,
// approves the request, waits for the certificate, verifies the certificate, and deletes the request.
//
// Owns: the CertificateSigningRequests that it creates, and the limit of concurrent requests for one identity.
// Reads: the API server, and signers' roots from the mesh configuration.
// Never: approves a request that another client created; returns a certificate for another identity; retains a CSR or a
// certificate.
package registrar

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/obs"
)

// One certificate takes four requests to the API server with a fast signer, and eight with a signer that needs a
// second. At requestRate, one process therefore obtains 20 certificates a second, or 10 with the slower signer.
const (
	Signing      = 64 // limit of concurrent requests in one process; ca/serve enforces it (serve.Limits.Signing)
	ofIdentity   = 16 // limit of concurrent requests for one identity
	requestRate  = 80 // requests to the API server per second, as istiod sends
	requestBurst = 160
	shortest     = 600 * time.Second // shortest lifetime that an API server accepts (expirationSeconds)
	cleaning     = 5 * time.Second   // timeout for deleting an object
)

// Config configures New. API, Roots and MaxTTL are required.
type Config struct {
	API    *apiserver.Client // needs the rights to create, read, approve and delete CertificateSigningRequests
	Signer string            // signer for callers that name no signer (K8S_SIGNER); empty: such callers are refused
	Domain string            // prefix for a signer that a caller names (CERT_SIGNER_DOMAIN); empty: such callers are refused
	// Roots returns two lists: the roots of one signer, and the roots of all signers (the trust bundle of a workload).
	// The argument is Signer, or Domain/NAME for a caller that names a signer. Roots is called for each request, by
	// many goroutines at once. If the mesh configuration lacks the signer, Roots must return an empty first list. The
	// request is then refused.
	Roots  func(signer string) (own, all []*x509.Certificate)
	MaxTTL time.Duration    // longest remaining lifetime of an accepted certificate, with a tolerance of issue.Backdate
	Now    func() time.Time // for verifying certificates; nil: time.Now
	Log    *slog.Logger     // nil: discarded
}

// Registrar implements serve.Registrar with Kubernetes signers. Safe for concurrent use.
type Registrar struct {
	cfg    Config
	pace   *rate.Limiter
	logged *obs.Sampled // sampled, because callers can cause these log lines

	mu    sync.Mutex     // a leaf lock: no other lock is taken while it is held
	under map[string]int // number of requests under way, by identity
}

// New returns a Registrar. It sends no request, and does not check the required fields.
func New(c Config) *Registrar {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Registrar{cfg: c, pace: rate.NewLimiter(requestRate, requestBurst), logged: obs.NewSampled(c.Log), under: map[string]int{}}
}

// Register implements serve.Registrar: it blocks until the signer has issued the certificate, an error occurs, or ctx
// ends. The returned certificate is verified. q.Signer is the signer's name without Config.Domain; if it is empty,
// Config.Signer signs. Registered.Bundle is the second list of Config.Roots.
//
// issue.ErrInvalid: the CSR does not parse or names anything except q.Identity, the signer's name is malformed, missing
// or not permitted, or the signer has no roots. serve.ErrBusy: 16 requests of the identity are under way.
// serve.ErrRefused: the request was denied or has failed. issue.ErrForeign: the signer's certificate does not match the
// request.
//
// Other errors: the API server fails, the stored object differs from the sent one, or ctx ends. An error is also
// returned if the rate limit for the API server requires a wait beyond the deadline of ctx.
func (r *Registrar) Register(ctx context.Context, q serve.Registration) (got serve.Registered, err error) {
	defer func() { obs.SignerRequests.WithLabelValues(outcome(ctx, err)).Inc() }()
	key, err := issue.ParseExact(q.CSR, q.Identity)
	if err != nil {
		return got, err
	}
	signer, err := r.signer(q.Signer)
	if err != nil {
		return got, err
	}
	own, all := r.cfg.Roots(signer)
	if len(own) == 0 {
		return got, fmt.Errorf("%w: the mesh configuration has no root of signer %.200q (caCertificates, certSigners)", issue.ErrInvalid, signer)
	}
	if !r.begin(q.Identity.String()) {
		return got, fmt.Errorf("%w: %d of %s", serve.ErrBusy, ofIdentity, q.Identity)
	}
	defer r.end(q.Identity.String())
	text, err := r.obtain(ctx, signer, q)
	if err != nil {
		return got, err
	}
	issued, err := issue.Foreign{Identity: q.Identity, Key: key, Roots: own, MaxTTL: r.cfg.MaxTTL}.Check(text, r.cfg.Now())
	if err != nil {
		r.logged.Warn("a Kubernetes signer issued a certificate that does not match the request; it is not handed out", "",
			"signer", signer, obs.KeyIdentity, q.Identity.String(), obs.KeyError, err)
		return got, err
	}
	return serve.Registered{Issued: issued, Bundle: all, Signer: signer}, nil
}

// outcome returns the label of the metric SignerRequests for the result of a request.
func outcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "signed"
	case errors.Is(err, issue.ErrInvalid):
		return "invalid"
	case errors.Is(err, serve.ErrBusy):
		return "busy"
	case errors.Is(err, serve.ErrRefused):
		return "refused"
	case errors.Is(err, issue.ErrForeign):
		return "unfit"
	case ctx.Err() != nil:
		return "late"
	}
	return "unavailable"
}

// signer returns the full name of the signer that a caller names. For an empty name it returns the default signer.
// Errors match issue.ErrInvalid.
func (r *Registrar) signer(said string) (string, error) {
	switch {
	case said == "" && r.cfg.Signer != "":
		return r.cfg.Signer, nil
	case said == "":
		return "", fmt.Errorf("%w: it names no signer (metadata.CertSigner), and this mesh has no default signer (K8S_SIGNER)",
			issue.ErrInvalid)
	case r.cfg.Domain == "":
		return "", fmt.Errorf("%w: it names a signer (metadata.CertSigner), and this mesh has no domain of signers (CERT_SIGNER_DOMAIN)",
			issue.ErrInvalid)
	case strings.ContainsAny(said, "/ \t\r\n"):
		return "", fmt.Errorf("%w: %.100q is no name of a signer in %s", issue.ErrInvalid, said, r.cfg.Domain)
	}
	return r.cfg.Domain + "/" + said, nil
}

// begin counts a request of an identity as under way, until end is called. It returns false, and counts nothing, if
// ofIdentity requests are under way.
func (r *Registrar) begin(identity string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under[identity] >= ofIdentity {
		return false
	}
	r.under[identity]++
	return true
}

func (r *Registrar) end(identity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under[identity]--; r.under[identity] == 0 {
		delete(r.under, identity)
	}
}
