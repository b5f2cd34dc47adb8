package main

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/registrar"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/obs"
)

// Limits on the certificate requests of one identity, for certificates that Kubernetes signers issue. Such signers are
// slower than a signing key in this process.
const (
	registrations      = 20 // per second, on average
	registrationsBurst = 500
)

// addRegistrar adds role ca in the variant in which Kubernetes signers issue the certificates.
func (a *assembly) addRegistrar() error {
	c := a.config
	server, err := caserve.New(caserve.Config{
		Registrar: registrar.New(registrar.Config{API: a.api, Signer: c.env.signer,
			Domain: c.env.signerDomain, Roots: a.signerRoots, MaxTTL: c.env.maxCertTTL, Now: now, Log: a.scoped(obs.ScopeCA)}),
		Now: now, Authenticator: a.callers.OfCalls(), Revocations: deniedAlone{a.denied},
		Policy: issue.Policy{DefaultTTL: c.env.certTTL, MaxTTL: c.env.maxCertTTL},
		Renewals: caserve.Renewals{Alone: c.renewAlone, Machines: c.renewMachines,
			Machine: identities.Machines(a.snapshot), Tokens: a.callers.Tokens()},
		Limits: caserve.Limits{Signing: registrar.Signing, Rate: registrations, Burst: registrationsBurst},
		Hooks:  certificateHooks(), Audit: a.scoped(obs.ScopeCA),
	})
	if err != nil {
		return err
	}
	a.add(part{
		plain:  []func(grpc.ServiceRegistrar){func(r grpc.ServiceRegistrar) { caserve.RegisterPlain(r, elsewhere{}) }},
		secure: []func(grpc.ServiceRegistrar){server.Register},
		notes:  []func() []string{a.signerKnown},
		gauges: []func(time.Time){func(time.Time) { queued(server.Stats()) }},
	})
	return nil
}

// signerRoots returns root certificates from caCertificates in the mesh configuration. The result own has the roots of
// the entries whose certSigners name the signer. The result all has the roots of every entry. Both results are nil
// while the configuration is not known.
func (a *assembly) signerRoots(signer string) (own, all []*x509.Certificate) {
	s := a.snapshot()
	if s == nil {
		return nil, nil
	}
	read := func(texts []string) (out []*x509.Certificate) {
		for _, text := range texts {
			if certs, err := issue.Certificates([]byte(text)); err == nil { // normal has dropped invalid ones
				out = append(out, certs...)
			}
		}
		return out
	}
	return read(normal.SignerCertificates(s.Mesh().Spec, signer)), read(normal.CACertificates(s.Mesh().Spec))
}

// signerKnown returns a note for operators while the default signer has no root. It returns nil if the default signer
// has a root, or if no default signer is set.
func (a *assembly) signerKnown() []string {
	signer := a.config.env.signer
	if signer == "" {
		return nil
	}
	if own, _ := a.signerRoots(signer); len(own) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("no certificates are issued: the mesh configuration has no root for signer %s (caCertificates, certSigners)",
		signer)}
}

// deniedAlone is the source of revocations if another CA signs. It knows only the identities that the configuration
// denies.
type deniedAlone struct{ denied *identities.Denied }

// RevokedIdentity reports whether the configuration denies an identity.
func (d deniedAlone) RevokedIdentity(id spiffeid.ID) bool { return d.denied.Has(id) }

// RevokedSerial returns false, because only the other CA revokes serial numbers.
func (d deniedAlone) RevokedSerial(string) bool { return false }

// elsewhere provides an empty authority to caserve.RegisterPlain, because this process does not sign. The service of
// caserve.RegisterPlain only tells callers without TLS that certificates require TLS.
type elsewhere struct{}

// Current returns an empty authority, never nil, without an error.
func (elsewhere) Current() (*caserve.Current, error) { return &caserve.Current{}, nil }
