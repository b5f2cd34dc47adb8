package main

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/obs"
)

// secure says whether a call came over TLS.
func secure(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	_, ok = p.AuthInfo.(credentials.TLSInfo)
	return ok
}

// current gives the CA service what the keyring has in force.
type current struct{ ring *keyring.Keyring }

func (c current) Current() (*caserve.Current, error) {
	s := c.ring.State()
	if s.Active == nil {
		return nil, s.Sealed
	}
	return &caserve.Current{Authority: s.Active, Bundle: s.Bundle, Publication: s.Generation}, nil
}

// journal records certificates in the keyring's journal.
type journal struct{ ring *keyring.Keyring }

func (j journal) Append(ctx context.Context, e caserve.Entry) error {
	return j.ring.Append(ctx, keyring.Issue{
		Serial: e.Serial, Identity: e.Identity.String(), Epoch: e.Epoch, Generation: e.Publication,
		NotBefore: e.NotBefore, NotAfter: e.NotAfter, By: e.By, Pod: e.Pod, Peer: e.Peer,
	})
}

type revocations struct{ ring *keyring.Keyring }

func (r revocations) RevokedIdentity(id spiffeid.ID) bool { return r.ring.State().RevokedIdentity(id) }
func (r revocations) RevokedSerial(serial string) bool    { return r.ring.State().RevokedSerial(serial) }

type holders struct{ ring *keyring.Keyring }

func (h holders) Held(ctx context.Context, held caserve.Holder) error {
	return h.ring.Held(ctx, held.Serial, held.Identity.String(), held.Roots)
}

// certificateHooks count under istiod's names.
func certificateHooks() caserve.Hooks {
	return caserve.Hooks{
		Request:         obs.CSRs.Inc,
		Issued:          func(took time.Duration) { obs.CertificatesIssued.Inc(); obs.IssueTime.Observe(took.Seconds()) },
		Unauthenticated: obs.CSRAuthFailures.Inc,
		BadCSR:          obs.CSRParseErrors.Inc,
		BadIdentity:     obs.CSRIdentityErrors.Inc,
		SignFailed:      obs.CSRSignErrors.Inc,
	}
}
