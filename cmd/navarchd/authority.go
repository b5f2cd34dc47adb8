package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// authority is the keyring, who may ask, and, in role ca, the service that signs. A process with role xds alone has it where
// it is given --kek: agents get roots and revocation lists from it, and the secure address its certificate.
type authority struct {
	config  *config
	log     *slog.Logger
	store   *kv.Store
	ring    *keyring.Keyring
	server  *caserve.Server
	callers attest.Authenticator
	tokens  attest.Authenticator // of callers, those alone that count for tokens; nil: none do
	keys    []*attest.Keys       // of token issuers, kept fresh
	serving *serving
}

// newAuthority makes the role. Every process with it may end rotations and prune the journal, by comparison: the elected
// ingester may be one without it.
func newAuthority(c *config, store *kv.Store, sealer seal.Sealer, snapshot func() *mirror.Snapshot, log *slog.Logger) (*authority, error) {
	domain, err := spiffeid.TrustDomainFromString(c.trustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain: %w", err)
	}
	a := &authority{config: c, log: log, store: store}
	if a.serving, err = newServing(c); err != nil {
		return nil, err
	}
	aliases := trustDomainAliases(snapshot)
	a.ring, err = keyring.New(keyring.Config{
		Store: store, Sealer: sealer, Mesh: c.mesh, TrustDomain: domain, Dir: c.stateDir, CACerts: c.caCerts, Logger: log, Peers: c.askPeers(),
		Leads: func() bool { return c.has(roleCA) }, Roots: c.believed(),
		Alarm: func(err error) { obs.StoreAlarm.WithLabelValues("keyring").Set(flag(err != nil)) },
	})
	if err != nil {
		return nil, err
	}
	if err := a.authenticators(domain, aliases); err != nil {
		return nil, err
	}
	self, err := c.controlPlane(domain)
	if err != nil {
		return nil, err
	}
	a.server, err = caserve.New(caserve.Config{
		ControlPlane: self, Names: c.servingNames(),
		Authorities: current{a.ring}, Authenticator: a.callers, Journal: journal{a.ring}, Revocations: revocations{a.ring},
		Holders: holders{a.ring}, Memory: a.ring, Aliases: aliases, Policy: issue.Policy{DefaultTTL: c.env.certTTL, MaxTTL: c.env.maxCertTTL},
		Hooks: certificateHooks(), Audit: log,
	})
	return a, err
}

// authenticators are the credentials that count: the certificate of the connection, then a token of Kubernetes' issuer
// (--token-issuer) or of our own (embedded default).
func (a *authority) authenticators(domain spiffeid.TrustDomain, aliases func() []spiffeid.TrustDomain) error {
	var err error
	if a.tokens, a.keys, err = a.config.tokens(domain, a.log); err != nil {
		return err
	}
	chain := []attest.Authenticator{&attest.Certificates{TrustDomain: domain, Aliases: aliases}}
	if a.tokens != nil {
		chain = append(chain, a.tokens)
	}
	a.callers = attest.Chain(chain...)
	return nil
}

// askPeers asks the other replicas with role ca what keyring they remember; nil where none are named.
func (c *config) askPeers() func(context.Context, []byte) ([][]byte, error) {
	if len(c.caPeers) == 0 {
		return nil
	}
	return func(ctx context.Context, nonce []byte) ([][]byte, error) {
		return caserve.AskPeers(ctx, c.caPeers, nonce)
	}
}

func (a *authority) tasks() []loop.Task {
	tasks := []loop.Task{{Name: "keyring", Run: a.ring.Run}}
	if a.serving.files == nil && a.config.secureGRPCAddr != "" {
		tasks = append(tasks, loop.Task{Name: "serving certificate", Run: newBorrower(a.config, a, a.store).run})
	}
	for i, keys := range a.keys {
		tasks = append(tasks, loop.Task{Name: fmt.Sprintf("token keys %d", i), Run: keys.Run})
	}
	return tasks
}

// authenticate says who an xDS stream belongs to: nobody on plain text, and on the secure address whoever a certificate
// or a token names; no credential there is refused (XDS_AUTH).
func (a *authority) authenticate(ctx context.Context) (string, error) {
	if !secure(ctx) {
		return "", nil
	}
	caller, err := a.callers.Authenticate(ctx)
	if errors.Is(err, attest.ErrNone) && !a.config.env.xdsAuth {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if state := a.ring.State(); state.RevokedIdentity(caller.ID) || caller.Serial != "" && state.RevokedSerial(caller.Serial) {
		return "", fmt.Errorf("%s: its certificate or its identity is revoked", caller.ID)
	}
	return caller.ID.String(), nil
}
