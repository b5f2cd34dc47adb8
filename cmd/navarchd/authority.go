package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// authority is the role ca: the keyring, the service that signs, and who may ask.
type authority struct {
	config  *config
	log     *slog.Logger
	ring    *keyring.Keyring
	server  *caserve.Server
	callers attest.Authenticator
	keys    []*attest.Keys // of token issuers, kept fresh

	mu      sync.Mutex // a leaf: guards what follows
	serving *tls.Certificate
	epoch   uint64
	rooted  *keyring.State // that roots are of
	roots   *x509.CertPool
}

// newAuthority makes the role. Every process with it may end rotations and prune the journal, by comparison: the elected
// ingester may be one without it.
func newAuthority(c *config, store *kv.Store, log *slog.Logger) (*authority, error) {
	domain, err := spiffeid.TrustDomainFromString(c.trustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain: %w", err)
	}
	provider, err := seal.NewProvider(c.kek)
	if err != nil {
		return nil, fmt.Errorf("--kek: %w", err)
	}
	sealer, err := seal.New(provider)
	if err != nil {
		return nil, err
	}
	a := &authority{config: c, log: log}
	a.ring, err = keyring.New(keyring.Config{
		Store: store, Sealer: sealer, Mesh: c.mesh, TrustDomain: domain, Dir: c.dataDir, CACerts: c.caCerts, Logger: log,
		Alarm: func(err error) { obs.StoreAlarm.WithLabelValues("keyring").Set(flag(err != nil)) },
	})
	if err != nil {
		return nil, err
	}
	if err := a.authenticators(domain); err != nil {
		return nil, err
	}
	a.server, err = caserve.New(caserve.Config{
		Authorities: current{a.ring}, Authenticator: a.callers, Journal: journal{a.ring}, Revocations: revocations{a.ring},
		Holders: holders{a.ring}, Policy: issue.Policy{DefaultTTL: c.env.certTTL, MaxTTL: c.env.maxCertTTL},
		Hooks: certificateHooks(), Audit: log,
	})
	return a, err
}

// authenticators are the credentials that count: the certificate of the connection, then a token of Kubernetes' issuer
// (--token-issuer) or of our own (embedded default).
func (a *authority) authenticators(domain spiffeid.TrustDomain) error {
	c := a.config
	tokens := attest.TokensConfig{TrustDomain: domain, Audiences: c.env.audiences}
	if c.tokenIssuer != "" {
		conf := attest.KeysConfig{Log: a.log}
		switch {
		case c.tokenKeys == "":
			conf.Discovery = c.tokenIssuer
		case strings.Contains(c.tokenKeys, "://"):
			conf.URL = c.tokenKeys
		default:
			conf.File = c.tokenKeys
		}
		keys, err := attest.NewKeys(conf)
		if err != nil {
			return fmt.Errorf("--token-issuer, --token-keys: %w", err)
		}
		a.keys = append(a.keys, keys)
		tokens.Issuers = append(tokens.Issuers, attest.TokenIssuer{Name: c.tokenIssuer, Keys: keys})
	}
	if c.dataDir != "" {
		own, err := attest.Local(c.dataDir)
		if err != nil {
			return err
		}
		verifier, err := own.Verifier()
		if err != nil {
			return err
		}
		tokens.Issuers = append(tokens.Issuers, verifier)
	}
	chain := []attest.Authenticator{&attest.Certificates{TrustDomain: domain}}
	if len(tokens.Issuers) > 0 {
		t, err := attest.NewTokens(tokens)
		if err != nil {
			return err
		}
		chain = append(chain, t)
	}
	a.callers = attest.Chain(chain...)
	return nil
}

func (a *authority) tasks() []loop.Task {
	tasks := []loop.Task{{Name: "keyring", Run: a.ring.Run}}
	for i, keys := range a.keys {
		tasks = append(tasks, loop.Task{Name: fmt.Sprintf("token keys %d", i), Run: keys.Run})
	}
	if a.config.dataDir != "" {
		tasks = append(tasks, loop.Task{Name: "roots", Run: a.writeRoots})
	}
	return tasks
}

// writeRoots keeps root-cert.pem in the data directory: what agents on this machine verify the control plane against.
func (a *authority) writeRoots(ctx context.Context) error {
	path, written := filepath.Join(a.config.dataDir, "root-cert.pem"), ""
	var seen *keyring.State
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if state := a.ring.State(); state != seen {
			seen = state
			if pem := string(issue.EncodeCertificates(state.Bundle...)); pem != "" && pem != written {
				if err := os.WriteFile(path+".new", []byte(pem), 0o644); err != nil {
					return err
				}
				if err := os.Rename(path+".new", path); err != nil {
					return err
				}
				written = pem
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// tls is the configuration of the secure address: our own certificate from our own CA (or the operator's files), client
// certificates verified against the bundle where they are presented.
func (a *authority) tls() *tls.Config {
	c := a.config
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			state := a.ring.State()
			conf := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, ClientCAs: a.pool(state), ClientAuth: tls.VerifyClientCertIfGiven}
			var err error
			if c.tlsCert != "" {
				conf.Certificates = make([]tls.Certificate, 1)
				conf.Certificates[0], err = tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
				return conf, err
			}
			own, err := a.certificate(state)
			if err != nil {
				return nil, err
			}
			conf.Certificates = []tls.Certificate{*own}
			return conf, nil
		},
	}
}

// pool is the roots of a state, made once for all handshakes under it.
func (a *authority) pool(state *keyring.State) *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rooted != state {
		a.rooted, a.roots = state, x509.NewCertPool()
		for _, root := range state.Bundle {
			a.roots.AddCert(root)
		}
	}
	return a.roots
}

// certificate is the process's own serving certificate: made anew when the signer changes, and at half of its life.
func (a *authority) certificate(state *keyring.State) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.serving != nil && (state.Active == nil || a.epoch == state.Active.Epoch) {
		leaf := a.serving.Leaf
		if now.Before(leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)) {
			return a.serving, nil
		}
	}
	if state.Active == nil {
		if a.serving != nil && now.Before(a.serving.Leaf.NotAfter) {
			return a.serving, nil // sealed: what was made before goes on
		}
		return nil, fmt.Errorf("no serving certificate: %w", state.Sealed)
	}
	fresh, err := issue.Serving(state.Active, issue.ServingRequest{Names: a.config.servingNames()}, issue.Policy{}, now, nil)
	if err != nil {
		return nil, fmt.Errorf("make the serving certificate: %w", err)
	}
	a.serving, a.epoch = &fresh, state.Active.Epoch
	return a.serving, nil
}

func (c *config) servingNames() []string {
	names := issue.ServingNames(c.env.podNamespace, c.env.revision, c.env.customHost)
	return append(names, "localhost", "127.0.0.1", "::1")
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
	return caller.ID.String(), nil
}
