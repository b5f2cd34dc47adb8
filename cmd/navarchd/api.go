package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/preauth"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// addAPI adds /api/v1. deliveries is nil without role xds. objects is nil without role ingest. The error is that of
// proof.
func (a *assembly) addAPI(deliveries *ledger.Ledger, objects api.Objects) error {
	c := a.config
	conf := api.Config{Self: c.processName(), Zone: c.zone, Version: obs.Version, Rules: a.pages.Rules, Pages: a.pages, Objects: objects,
		Leader: a.pages.Removals.Leader, Report: a.collector(deliveries).Part}
	if served := a.pages.Proxies; served != nil {
		conf.Proxies, conf.Server, conf.Ledger, conf.Changes = served, served.Server, deliveries, deliveries.Changes
		conf.Describe = served.Describe
	}
	var proof ask.Proof
	if a.store != nil && c.dataDir == "" { // with an embedded etcd there are no other replicas
		var err error
		if proof, err = a.proof(); err != nil {
			return err
		}
		conf.Fleet = &api.Fleet{}
		conf.Members = conf.Fleet.Members
		conf.Replicas = &ask.Replicas{Self: c.processName(), Proof: proof, Members: conf.Members}
		a.add(part{tasks: []loop.Task{{Name: "fleet for the API", Run: func(ctx context.Context) error {
			fleets, err := member.Follow(ctx, a.store, a.log)
			if err != nil {
				return err
			}
			for f := range fleets {
				conf.Fleet.Set(f.Members, time.Now())
			}
			return nil
		}}}})
	}
	a.questions = api.New(conf)
	if conf.Replicas != nil && deliveries != nil {
		server := &ask.Server{Proof: proof, Answer: a.questions.Asked,
			Admitted: func(ctx context.Context) error { return preauth.Authenticated(ctx, nil) }}
		a.add(part{secure: []func(grpc.ServiceRegistrar){server.Register},
			tasks: []loop.Task{{Name: "sums", Run: func(ctx context.Context) error { return a.sums.Run(ctx, a.pages.Proxies, conf.Self) }}}})
	}
	return nil
}

// proof returns the identities, certificates and roots by which replicas authenticate to each other. The error reports
// an invalid setting.
func (a *assembly) proof() (p ask.Proof, err error) {
	c := a.config
	domain, err := spiffeid.TrustDomainFromString(c.trustDomain)
	if err != nil {
		return p, fmt.Errorf("--trust-domain: %w", err)
	}
	if p.Identities, err = c.controlPlane(domain); err != nil {
		return p, err
	}
	p.Name, p.Revoked = c.peerName(), a.pages.Rules.Revoked
	state, own := func() *keyring.State { return &keyring.State{Sealed: errNoCertificate} }, a.serving
	if a.roots != nil {
		state = a.roots.State
		p.Roots = func() []*x509.Certificate { return state().Callers() }
	}
	if own == nil {
		if own, err = serving.New(c.servingNames(), c.tlsCert, c.tlsKey); err != nil {
			return p, err
		}
	}
	p.Own = func() (*tls.Certificate, error) { return own.Certificate(state(), time.Now()) }
	return p, nil
}

// errNoCertificate is the reason why a process without a keyring and without --tls-cert has no certificate.
var errNoCertificate = errors.New("the secure address is off: it needs role ca, --kek, or --tls-cert and --tls-key")

// pagesOverHTTP returns the handler of /debug and /api/v1.
func (a *assembly) pagesOverHTTP() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/debug/", a.pages.Handler())
	mux.Handle(fleetapi.Root, a.questions.Handler())
	return mux
}
